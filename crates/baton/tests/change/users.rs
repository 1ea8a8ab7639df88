//! Users: a slow hash delays nobody else, and a reload changes a password at once.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;

use base64::prelude::{BASE64_STANDARD, Engine};

use super::support::{Proxy, free_address};
use super::{connect, exchange};

/// What crypt(3) makes of a password.
fn crypt(setting: &str, password: &str) -> String {
    let script = "print crypt($ARGV[1], $ARGV[0])";
    let made = std::process::Command::new("perl").args(["-e", script, setting, password]).output();
    String::from_utf8(made.expect("perl is part of Debian").stdout).expect("a hash is text")
}

fn config(bind: &str, password: &str) -> String {
    format!(
        "global\n nbthread 1\nuserlist L\n user tom password {password}\nfrontend web\n mode http\n timeout client 30s\n bind {bind}\n \
         http-request auth if {{ path /secret }} !{{ http_auth(L) }}\n \
         http-request return status 200 content-type text/plain string ok\n"
    )
}

/// Sends a request with these credentials.
fn ask(address: SocketAddr, path: &str, credentials: &str) -> TcpStream {
    let mut stream = connect(address);
    let credentials = BASE64_STANDARD.encode(credentials);
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Basic {credentials}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// The status of the response to it.
fn answer(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap_or_default().into()
}

fn status(address: SocketAddr, path: &str, credentials: &str) -> String {
    answer(&mut ask(address, path, credentials))
}

#[test]
fn a_slow_hash_delays_nobody_else() {
    let address = free_address();
    let proxy = Proxy::start(&config(&address.to_string(), &crypt("$2b$11$abcdefghijklmnopqrstuu", "right")));
    let mut login = ask(address, "/secret", "tom:wrong");
    let (done, ended) = mpsc::channel();
    let waiting = thread::spawn(move || done.send(answer(&mut login)).unwrap());
    // The one core has the request now; without a thread for the comparison it would serve one or two others at most until that is done.
    let mut other = connect(address);
    let mut meanwhile = 0;
    let first = loop {
        if let Ok(status) = ended.try_recv() {
            break status;
        }
        assert!(exchange(&mut other, "/", "keep-alive").unwrap().ends_with("ok"));
        meanwhile += 1;
    };
    waiting.join().unwrap();
    assert_eq!(first, "401");
    assert!(meanwhile > 5, "{meanwhile} requests during the comparison of a password");
    // The results are remembered: a right one and a wrong one.
    assert_eq!(status(address, "/secret", "tom:right"), "200");
    for _ in 0..50 {
        assert_eq!(status(address, "/secret", "tom:right"), "200");
        assert_eq!(status(address, "/secret", "tom:wrong"), "401");
    }
    drop(proxy);
}

#[test]
fn a_reload_changes_a_password() {
    let address = free_address();
    let bind = address.to_string();
    let hash = |password: &str| crypt("$6$rounds=1000$salt$", password);
    let proxy = Proxy::start(&config(&bind, &hash("old")));
    assert_eq!(
        (status(address, "/secret", "tom:old"), status(address, "/secret", "tom:new")),
        ("200".into(), "401".into())
    );
    proxy.change(&config(&bind, &hash("new")));
    assert_eq!(
        (status(address, "/secret", "tom:old"), status(address, "/secret", "tom:new")),
        ("401".into(), "200".into())
    );
    // What is refused changes nothing.
    let refused = config(&bind, &hash("newest")).replace("http_auth(L)", "http_auth(M)");
    assert!(proxy.change_refused(&refused).contains("'M'"));
    assert_eq!(status(address, "/secret", "tom:new"), "200");
}
