//! Hand-made servers that misbehave exactly as told.

#![allow(dead_code, reason = "each test file uses its own part of this")]

pub mod certificates;
pub mod shape;
pub mod timed;

use std::{
    future::Future,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use socket2::SockRef;

/// A server that hands its connections, numbered from 0, to `script`, one at a time. It lives as long as the test.
pub fn server(script: impl Fn(usize, &mut TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            script(number, &mut stream.expect("a connection"));
        }
    });
    address
}

/// Reads one head (of a request without a body) to its end; `false` when the client has gone.
pub fn read_head(stream: &mut impl Read) -> bool {
    head(stream).ends_with("\r\n\r\n")
}

/// Reads one head and returns it; without the empty line at its end when the client has gone.
pub fn head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|length| length == 1) {
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("a head of this client is text")
}

/// Writes, whatever becomes of it.
pub fn say(stream: &mut impl Write, text: impl AsRef<[u8]>) {
    let _ = stream.write_all(text.as_ref());
}

/// Makes the coming close a reset.
pub fn reset(stream: &TcpStream) {
    SockRef::from(stream).set_linger(Some(Duration::ZERO)).expect("a socket");
}

/// Waits until the client closes.
pub fn hold(stream: &mut TcpStream) {
    while stream.read(&mut [0; 1024]).is_ok_and(|length| length > 0) {}
}

/// Runs `test` to its end; one that hangs is a failure.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await.expect("it hangs") })
}
