//! A relay in front of a real server, which breaks each connection after the first bytes of the server.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::until;

/// How a connection is broken.
#[derive(Clone, Copy)]
pub enum Break {
    /// The client reads the end of the stream.
    Cut,
    /// The server's process stands still. It goes on for the next connection, and when the relay is dropped. Of a server that speaks first the
    /// client's bytes reach nothing that runs: they wait until it has stopped.
    Stop { pid: Pid, speaks_first: bool },
}

/// A relay on a port of its own.
pub struct Relay {
    pub port: u16,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    how: Break,
}

impl Relay {
    /// In front of the server at `upstream`. `bytes` of the server reach the client; with [`Break::Stop`] at least one, and those that came with it.
    pub fn start(upstream: u16, bytes: usize, how: Break) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let is_over = Arc::new(AtomicBool::new(false));
        let is_over_there = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if is_over_there.load(Ordering::Relaxed) {
                    break;
                }
                // A client that is gone in the middle is no reason to stop.
                let _ = pass(client, upstream, bytes, how);
            }
        });
        Relay { port, is_over, thread: Some(thread), how }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        resume(self.how);
    }
}

fn resume(how: Break) {
    if let Break::Stop { pid, .. } = how {
        // One that has ended is another test's failure.
        let _ = kill(pid, Signal::SIGCONT);
    }
}

/// The process stands still: not only the signal was sent, but each of its threads has stopped. It ends by itself if the process does.
fn stop(pid: Pid) {
    let _ = kill(pid, Signal::SIGSTOP);
    until("all threads stand still", || {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
        let states = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
        // The state stands behind the name, which is in parentheses.
        states.into_iter().all(|stat| stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 'Z'])))
    });
}

/// One connection, until the client has closed it.
fn pass(mut client: TcpStream, upstream: u16, bytes: usize, how: Break) -> std::io::Result<()> {
    resume(how);
    let server = TcpStream::connect(("127.0.0.1", upstream))?;
    let (mut from_client, mut to_server, mut from_server) =
        (client.try_clone()?, server.try_clone()?, server.try_clone()?);
    let (may_pass, stopped) = channel::<()>();
    let upwards = thread::spawn(move || {
        if matches!(how, Break::Stop { speaks_first: true, .. }) {
            // The end of the channel says so.
            let _ = stopped.recv();
        }
        std::io::copy(&mut from_client, &mut to_server)
    });
    let mut left = bytes;
    let mut part = [0; 4096];
    while left > 0 {
        let room = if matches!(how, Break::Cut) { left.min(part.len()) } else { part.len() };
        let count = from_server.read(&mut part[..room])?;
        if count == 0 {
            break;
        }
        if let Break::Stop { pid, .. } = how {
            stop(pid);
        }
        client.write_all(&part[..count])?;
        left = left.saturating_sub(count);
    }
    drop(may_pass);
    if matches!(how, Break::Cut) {
        client.shutdown(Shutdown::Write)?;
    }
    // The client closes when it has judged.
    let _ = upwards.join();
    server.shutdown(Shutdown::Both)
}
