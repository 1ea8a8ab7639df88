//! Clients of a web: one that asks once, and ten that ask for as long as something is done to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use baton_prove::{Load, LoadOptions, LoadResult};

/// A request on a connection of its own; the whole answer.
#[track_caller]
pub fn ask(mut stream: impl Read + Write) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers in text");
    answer
}

/// The body of the response.
#[track_caller]
pub fn body(stream: impl Read + Write) -> String {
    ask(stream).rsplit("\r\n").next().unwrap_or_default().trim_end().to_owned()
}

/// What is answered at an address.
#[track_caller]
pub fn web(address: &str) -> String {
    body(TcpStream::connect(address).expect("nobody is refused"))
}

/// Requests of ten clients, a connection each, while `work` goes on.
pub fn under_load(address: &str, work: impl FnOnce()) -> LoadResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let target: SocketAddr = address.parse().expect("an address");
    let options = LoadOptions { keep_alive: false, concurrency: 10, ..LoadOptions::new(target) };
    let load = runtime.block_on(async { Load::start(options).expect("the address can be asked") });
    work();
    runtime.block_on(load.stop())
}

/// That there were requests, and that none of them failed.
#[track_caller]
pub fn assert_clean(result: &LoadResult, said: &str) {
    assert_eq!(result.counts.failed(), 0, "{:?} {:?}\n{said}", result.failures, result.errors);
    assert!(result.counts.completed > 100, "only {} requests", result.counts.completed);
}
