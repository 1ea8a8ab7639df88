//! Requests: the server's own counters, what it saw, and which answers are right.

use std::process::Command;

use baton_prove::{Origin, OriginHandle, OriginOptions};
use serde_json::Value;

use super::nginx::Nginx;
use super::support::free_address;
use super::{file, load, load_json};

/// An answer of 1 byte to the first nine requests of a connection, then of 2.
const GROWS: &str = r#"location /grows { return 200 "$connection_requests"; }"#;

fn origin() -> OriginHandle {
    Origin::start(OriginOptions::new("o")).expect("loopback has a free port")
}

/// What `ab` says after this label.
#[track_caller]
fn ab(arguments: &str, label: &str) -> String {
    let output =
        Command::new("ab").args(arguments.split_whitespace()).output().expect("ab is there, see scripts/setup");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(label)).unwrap_or_else(|| panic!("{text}"));
    line.trim().split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn the_server_counts_what_the_client_counts_and_so_does_ab() {
    let nginx = Nginx::start(r#"location /a { return 200 "hello\n"; }"#);
    let (url, before) = (nginx.url("/a"), nginx.seen());
    let said = load_json(&format!("-n 1000 -c 10 -k {url}"));
    let (result, after) = (said.json(), nginx.seen());
    // Each question to nginx is a connection and a request of its own.
    assert_eq!((after.0 - before.0 - 1, after.1 - before.1 - 1), (10, 1000));
    assert_eq!(said.counts(), (Some(0), 1000, 1000, 0), "{said:?}");
    assert_eq!((&result["connections"], &result["body_bytes"]), (&Value::from(10), &Value::from(6000)));

    assert_eq!(ab(&format!("-n 1000 -c 10 -k {url}"), "Complete requests:"), "1000");
    assert_eq!(nginx.seen().1 - after.1 - 1, 1000, "by ab");

    let before = nginx.seen();
    let said = load_json(&format!("-n 200 -c 4 {url}"));
    let after = nginx.seen();
    assert_eq!((after.0 - before.0 - 1, after.1 - before.1 - 1), (200, 200), "a connection for each request");
    assert_eq!(said.counts(), (Some(0), 200, 200, 0), "{said:?}");
}

#[test]
fn lengths_may_vary_unless_they_must_not_as_in_ab() {
    let nginx = Nginx::start(GROWS);
    let url = nginx.url("/grows");
    let said = load_json(&format!("-n 20 -k --same-length {url}"));
    assert_eq!(said.counts(), (Some(1), 20, 9, 11), "{said:?}");
    assert_eq!(said.json()["failures"]["wrong_length"], 11);
    assert!(said.json()["warnings"].to_string().contains("without it lengths may vary"), "{said:?}");
    assert_eq!(ab(&format!("-n 20 -k {url}"), "Failed requests:"), "11");
    for varying in ["", "-l"] {
        assert_eq!(load_json(&format!("-n 20 -k {varying} {url}")).counts(), (Some(0), 20, 20, 0));
    }
}

#[test]
fn what_is_sent_arrives() {
    let nginx = Nginx::start(
        r#"location /saw { return 200 "$request_method $request_uri|$http_host|$http_x_a|$http_cookie|$http_authorization"; }
           location /typed { return 201 "$request_method $content_type $content_length"; }"#,
    );
    let folder = nginx.folder.path();
    let check = |arguments: &[&str], url: &str, expect: String| {
        let right = file(folder, "right", expect);
        let said = load(&[&["-q", "-n", "3", "--expect-body", &right], arguments, &[&nginx.url(url)]].concat());
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
    };
    let address = nginx.address;
    check(&[], "/saw?x=1", format!("GET /saw?x=1|{address}|||"));
    check(&["-H", "X-A: b c", "-C", "a=b", "-C", "c=d"], "/saw", format!("GET /saw|{address}|b c|a=b; c=d|"));
    check(&["-A", "me:secret", "--host", "h.example"], "/saw", "GET /saw|h.example|||Basic bWU6c2VjcmV0".into());
    check(&["-H", "host: other"], "/saw", "GET /saw|other|||".into());
    check(&["-m", "DELETE"], "/saw", format!("DELETE /saw|{address}|||"));

    let body = file(folder, "body", vec![b'x'; 10_000]);
    check(&["-p", &body, "--expect-status", "201"], "/typed", "POST text/plain 10000".into());
    check(&["-p", &body, "-H", "content-type: c/d"], "/typed", "POST c/d 10000".into());
    check(&["-u", &body, "-T", "a/b"], "/typed", "PUT a/b 10000".into());
    let said = load(&["-q", "-n", "3", "-i", &nginx.url("/saw")]);
    assert!(said.code == Some(0) && said.out.contains("0.0 MiB"), "{said:?}");
}

#[test]
fn a_body_arrives_as_it_was_sent() {
    let origin = origin();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let body: Vec<u8> = (0..300_000_u32).map(|byte| (byte % 251) as u8).collect();
    let body = file(folder.path(), "body", body);
    let url = format!("http://{}/echo", origin.address());
    let said = load_json(&format!("-n 20 -c 3 -k -p {body} --expect-body {body} {url}"));
    assert_eq!(said.counts(), (Some(0), 20, 20, 0), "{said:?}");
    let other = file(folder.path(), "other", vec![0; 300_000]);
    let said = load_json(&format!("-n 5 -p {body} --expect-body {other} {url}"));
    assert_eq!(said.counts(), (Some(1), 5, 0, 5), "{said:?}");
    assert_eq!(said.json()["failures"]["wrong_body"], 5);
}

#[test]
fn several_urls_are_asked_in_turn_each_with_its_own_failures() {
    let nginx = Nginx::start(r#"location /a { return 200 "a"; } location /b { return 200 "bb"; }"#);
    let nobody = format!("http://{}/", free_address());
    let urls = [nginx.url("/a"), nginx.url("/b"), nginx.url("/none"), nobody];
    let said = load_json(&format!("-n 40 -k {}", urls.join(" ")));
    let result = said.json();
    assert_eq!(said.counts(), (Some(1), 40, 20, 20), "{said:?}");
    assert_eq!((&result["failures"]["wrong_status"], &result["failures"]["refused"]), (&10.into(), &10.into()));
    assert_eq!(result["clean"], false);
    let first = &result["first_failures"][0];
    assert_eq!((&first["kind"], &first["request"], &first["status"]), (&"wrong_status".into(), &2.into(), &404.into()));
    assert_eq!(result["urls"][2], urls[2]);

    let said = load(&["-q", "-n", "4", &urls[2], &urls[3]]);
    assert_eq!(said.code, Some(1));
    for words in
        ["refused: 2 requests", "nothing listened", "wrong_status: 2", &urls[2], "status 404", "SOMETHING FAILED"]
    {
        assert!(said.out.contains(words), "{words}: {said:?}");
    }
    assert_eq!(load_json(&format!("-n 4 --expect-status 404 -l {}", urls[2])).counts(), (Some(0), 4, 4, 0));
    assert_eq!(load_json(&format!("-n 4 --expect-status any -l {} {}", urls[0], urls[2])).counts(), (Some(0), 4, 4, 0));
}

#[test]
fn a_unix_socket_is_an_address_too() {
    let nginx = Nginx::start(r#"listen unix:FOLDER/socket; location /a { return 200 "$server_addr$args"; }"#);
    let socket = nginx.folder.path().join("socket");
    let right = file(nginx.folder.path(), "right", format!("unix:{}x", socket.display()));
    let said = load_json(&format!("-n 10 -k --expect-body {right} http://unix:{}:/a?x", socket.display()));
    assert_eq!(said.counts(), (Some(0), 10, 10, 0), "{said:?}");
    let said = load_json(&format!("-n 2 http://unix:{}.gone:/", socket.display()));
    assert_eq!((said.counts(), said.json()["failures"]["refused"].as_u64()), ((Some(1), 2, 0, 2), Some(2)));
}

#[test]
fn a_fixed_rate_is_kept_and_every_slot_counted() {
    let nginx = Nginx::start(r#"location /a { return 200 "a"; }"#);
    let folder = nginx.folder.path().display();
    for name in ["s.csv", "s.json"] {
        let said = load_json(&format!("-n 100 --rate 400 -k --series {folder}/{name} {}", nginx.url("/a")));
        assert_eq!(said.counts(), (Some(0), 100, 100, 0), "{said:?}");
        // The last one is due after 99 of 400 parts of a second.
        assert!(said.json()["seconds"].as_f64().is_some_and(|seconds| seconds >= 0.247), "{said:?}");
    }
    let csv = std::fs::read_to_string(nginx.folder.path().join("s.csv")).expect("it was written");
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("at_ms,completed,failed,mean_us,max_us"));
    let completed =
        lines.map(|line| line.split(',').nth(1).and_then(|count| count.parse::<u64>().ok()).expect("a count"));
    assert_eq!(completed.collect::<Vec<_>>(), [4; 25]);
    let json = std::fs::read_to_string(nginx.folder.path().join("s.json")).expect("it was written");
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!((&json["interval_ms"], &json["slots"][24]["completed"]), (&10.into(), &4.into()));
}

#[test]
fn http2_has_many_requests_at_a_time_on_few_connections() {
    // Another program's HTTP/2, by prior knowledge.
    let nginx = Nginx::with("http2", r#"location /a { return 200 "hello\n"; }"#, |_| {});
    let said = load_json(&format!("-n 1000 -c 3 --http2 --streams 16 --same-length {}", nginx.url("/a")));
    assert_eq!(said.counts(), (Some(0), 1000, 1000, 0), "{said:?}");
    let result = said.json();
    assert_eq!((&result["connections"], &result["body_bytes"]), (&Value::from(3), &Value::from(6000)));

    let origin = origin();
    let url = format!("http://{}/bytes/100000", origin.address());
    let said = load(&["-q", "-n", "200", "-c", "2", "--http2", "--streams", "8", &url]);
    assert!(format!("{said:?}").contains("2 connections (HTTP/2, 8 streams each), 1 thread"), "{said:?}");
    assert_eq!((origin.connections(), origin.requests()), (2, 200));
    // A server of HTTP/1 answers the preface with what is not HTTP/2.
    let other = Nginx::start("");
    let said = load_json(&format!("-n 1 --http2 {}", other.url("/")));
    assert_eq!(said.counts(), (Some(1), 1, 0, 1), "{said:?}");
    assert_eq!(said.json()["first_failures"][0]["kind"], Value::from("malformed"), "{said:?}");
}
