//! The server behind one lane: it answers with what it has read, and writes down what could be read in another way.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::judge::{self, Found, Message};

/// What the lane and the connections of its origin share.
#[derive(Default)]
pub struct Books {
    /// Requests that were read whole.
    pub requests: AtomicUsize,
    /// Connections that were accepted.
    pub connections: AtomicUsize,
    /// What was open to interpretation.
    pub ambiguous: Mutex<Vec<String>>,
    /// The connection over which the last raw answer went.
    pub raw: Mutex<Option<TcpStream>>,
}

/// Opens the origin. `answers` are sent as they are to requests for `/answer/N`.
pub fn open(answers: Arc<Vec<Vec<u8>>>) -> (SocketAddr, Arc<Books>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let books = Arc::new(Books::default());
    let shared = books.clone();
    thread::spawn(move || {
        // It ends with the test's process: a stranger to nobody.
        for stream in listener.incoming().map_while(Result::ok) {
            let (books, answers) = (shared.clone(), answers.clone());
            books.connections.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || _ = serve(stream, &books, &answers));
        }
    });
    (address, books)
}

fn serve(mut stream: TcpStream, books: &Books, answers: &[Vec<u8>]) -> std::io::Result<()> {
    // What is written is in Baton's socket when the call returns, before anybody connects after it.
    stream.set_nodelay(true)?;
    let (mut input, mut room) = (Vec::new(), [0; 8192]);
    loop {
        // All that is there is read before the first of it is answered, so that whoever has an answer finds it in the books.
        let (mut out, mut raw, mut close) = (Vec::new(), false, false);
        loop {
            let message = match judge::request(&input) {
                Found::Partial => break,
                Found::Message(message) => message,
                Found::Bad(why, careless) => {
                    let text = format!("the origin read {:?}: {why}", input.escape_ascii().to_string());
                    books.ambiguous.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                    match careless {
                        Some(message) => message,
                        None => {
                            close = true;
                            break;
                        }
                    }
                }
            };
            input.drain(..message.len);
            books.requests.fetch_add(1, Ordering::SeqCst);
            raw |= message.start[1].starts_with("/answer/");
            close |= !is_kept(&message);
            out.extend(answer(&message, answers));
        }
        if raw {
            *books.raw.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream.try_clone()?);
        }
        stream.write_all(&out)?;
        if close {
            return stream.shutdown(Shutdown::Both);
        }
        match stream.read(&mut room)? {
            0 => return Ok(()),
            count => input.extend_from_slice(&room[..count]),
        }
    }
}

fn is_kept(message: &Message) -> bool {
    let says = |what: &[u8]| message.field("connection").is_some_and(|value| value.eq_ignore_ascii_case(what));
    if message.start[2] == "HTTP/1.0" { says(b"keep-alive") } else { !says(b"close") }
}

fn answer(message: &Message, answers: &[Vec<u8>]) -> Vec<u8> {
    let [method, target, _] = &message.start;
    if let Some(number) = target.strip_prefix("/answer/")
        && let Some(raw) = number.parse::<usize>().ok().and_then(|number| answers.get(number))
    {
        return raw.clone();
    }
    let status = if method == "CONNECT" { "405 Method Not Allowed" } else { "200 OK" };
    let body = if method == "HEAD" { "" } else { target };
    format!("HTTP/1.1 {status}\r\nX-Origin: {target}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}
