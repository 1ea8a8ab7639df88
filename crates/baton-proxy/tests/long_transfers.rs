//! Transfers that no buffer holds, to receivers that begin late, copied and spliced: every byte arrives, in order.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use baton_model::Mode;
use support::{Served, listen};

/// More than the sockets of both connections, the buffers and a pipe hold together.
const LENGTH: usize = 24 << 20;

/// After it a transfer is stuck.
const PATIENCE: Duration = Duration::from_secs(20);

/// The byte at a place of the transfer; the period fits into no buffer's size.
fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

/// Writes the whole transfer; says when the receiver is in the way for the first time.
fn send(mut to: &TcpStream, blocked: mpsc::Sender<()>) -> std::io::Result<()> {
    let block: Vec<u8> = (0..251 * 256).map(byte).collect();
    // Of the writes alone: the other direction reads from the same socket.
    to.set_write_timeout(Some(Duration::from_millis(1)))?;
    let (mut sent, mut blocked) = (0, Some(blocked));
    while sent < LENGTH {
        let from = sent % 251;
        let most = (block.len() - from).min(LENGTH - sent);
        match to.write(&block[from..from + most]) {
            Ok(count) => sent += count,
            Err(error) => match blocked.take().filter(|_| error.kind() == ErrorKind::WouldBlock) {
                Some(blocked) => {
                    to.set_write_timeout(Some(PATIENCE))?;
                    let _ = blocked.send(());
                }
                None => return Err(error),
            },
        }
    }
    Ok(())
}

/// Reads the whole transfer once the sender has met a full receiver.
fn receive(mut from: &TcpStream, blocked: mpsc::Receiver<()>) {
    from.set_read_timeout(Some(PATIENCE)).expect("an option");
    blocked.recv().expect("nobody holds so much");
    let mut buffer = vec![0; 100_003];
    let mut got = 0;
    while got < LENGTH {
        let most = buffer.len().min(LENGTH - got);
        let count = from.read(&mut buffer[..most]).expect("no reset");
        assert!(count > 0, "the end came after {got} bytes");
        for (at, found) in buffer[..count].iter().enumerate() {
            assert!(*found == byte(got + at), "another byte at {}", got + at);
        }
        got += count;
    }
}

fn transfer(from: &TcpStream, to: &TcpStream) {
    let (blocked, wait) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| send(from, blocked).expect("no reset"));
        scope.spawn(|| receive(to, wait));
    });
}

/// Reads a head, byte by byte.
fn head(mut from: &TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        from.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// A client's and an origin's end of a connection through the core; `run` says what passes.
fn through(mode: Mode, splice: bool, run: impl FnOnce(&mut TcpStream, &dyn Fn() -> TcpStream)) -> usize {
    let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut proxy = listen(mode, listening.local_addr().expect("bound"));
    proxy.tcp.splice_auto = splice;
    let served = Served::new(proxy);
    let mut client = served.connect();
    run(&mut client, &|| listening.accept().expect("the proxy connects").0);
    let pipes = served.registry.pipes.load(Ordering::Relaxed);
    drop(client);
    served.end();
    pipes
}

fn both(mode: Mode, run: impl Fn(&mut TcpStream, &dyn Fn() -> TcpStream)) {
    assert_eq!(through(mode, false, &run), 0, "nothing is spliced that is not asked for");
    assert!(through(mode, true, &run) > 0, "nothing was spliced");
}

#[test]
fn streams_pass_whole_in_both_directions_and_their_ends_with_them() {
    both(Mode::Tcp, |client, accept| {
        let mut origin = accept();
        transfer(client, &origin);
        transfer(&origin, client);
        client.write_all(b"last").expect("open");
        client.shutdown(Shutdown::Write).expect("open");
        let mut rest = Vec::new();
        origin.read_to_end(&mut rest).expect("no reset");
        assert_eq!(rest, b"last");
        drop(origin);
        assert_eq!(client.read(&mut [0]).expect("no reset"), 0);
    });
}

#[test]
fn both_directions_of_a_stream_pass_at_once() {
    both(Mode::Tcp, |client, accept| {
        let origin = accept();
        thread::scope(|scope| {
            scope.spawn(|| transfer(client, &origin));
            scope.spawn(|| transfer(&origin, client));
        });
    });
}

#[test]
fn uploads_pass_whole_and_the_connections_stay() {
    both(Mode::Http, |client, accept| {
        write!(client, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {LENGTH}\r\n\r\n").expect("open");
        let mut origin = accept();
        assert!(head(&origin).starts_with("PUT / "));
        transfer(client, &origin);
        origin.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("open");
        assert!(head(client).starts_with("HTTP/1.1 204"));
        client.write_all(b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n").expect("open");
        assert!(head(&origin).starts_with("GET /next "));
    });
}

#[test]
fn downloads_pass_whole_and_the_connections_stay() {
    both(Mode::Http, |client, accept| {
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("open");
        let mut origin = accept();
        head(&origin);
        write!(origin, "HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").expect("open");
        assert!(head(client).starts_with("HTTP/1.1 200"));
        transfer(&origin, client);
        client.write_all(b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n").expect("open");
        assert!(head(&origin).starts_with("GET /next "));
    });
}

#[test]
fn downloads_until_the_end_of_the_connection_pass_whole() {
    both(Mode::Http, |client, accept| {
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("open");
        let mut origin = accept();
        head(&origin);
        origin.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("open");
        assert!(head(client).starts_with("HTTP/1.1 200"));
        transfer(&origin, client);
        drop(origin);
        assert_eq!(client.read(&mut [0]).expect("no reset"), 0);
    });
}

#[test]
fn a_transfer_that_is_cut_off_leaves_no_pipe_behind_with_bytes_in_it() {
    let pipes = through(Mode::Tcp, true, |client, accept| {
        for _ in 0..2 {
            let origin = accept();
            let (blocked, wait) = mpsc::channel();
            thread::scope(|scope| {
                let sender = scope.spawn(|| send(&origin, blocked));
                wait.recv().expect("nobody holds so much");
                // A close with unread bytes is a reset.
                *client = TcpStream::connect(client.peer_addr().expect("connected")).expect("the proxy listens");
                assert!(sender.join().expect("it ends").is_err(), "the sender is told");
            });
        }
    });
    assert!(pipes <= 2, "{pipes} pipes are open");
}
