//! The lines of rings (`log ring@NAME`) on their way to syslog servers, by TCP or a unix stream socket.
//!
//! Each server has a task on the control thread. It connects, takes lines from the ring and writes them; what it was about to write when a
//! connection ended goes over the next one, from the beginning of the line on. A server that is away or slow costs the ring's oldest
//! lines, which the ring counts, and nobody's time.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use baton_kernel::output::losses;
use baton_kernel::output::ring::{self, RingFollower};
use baton_model::{Address, Model, Ring, RingServer, SyslogFraming};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long after a connection ended or failed the next one is tried.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);
/// `timeout connect` where it is not given.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Bytes that are taken from a ring at a time.
const TAKEN_MAX: usize = 64 * 1024;
/// How often it is looked at the end whether all lines are out.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The rings of the configuration in use, and the tasks that send their lines. Lives on one thread; dropping it ends all.
#[derive(Debug, Default)]
pub struct Rings {
    open: Vec<OpenRing>,
}

#[derive(Debug)]
struct OpenRing {
    settings: Arc<Ring>,
    buffer: Arc<ring::Ring>,
    senders: Vec<JoinHandle<()>>,
}

impl Drop for OpenRing {
    fn drop(&mut self) {
        self.senders.iter().for_each(JoinHandle::abort);
    }
}

impl Rings {
    /// Takes over the rings of a configuration. One whose section is as before goes on as it is.
    pub fn apply(&mut self, model: &Model) {
        let mut before = std::mem::take(&mut self.open);
        for settings in &model.rings {
            let same = before.iter().position(|open| open.settings == *settings);
            self.open.push(match same {
                Some(at) => before.swap_remove(at),
                None => OpenRing::new(settings),
            });
        }
    }

    /// Waits until all lines are with their servers, as far as these can be reached, but not longer than that.
    pub async fn flush(&self, within: Duration) {
        let empty = async {
            while self.open.iter().any(|open| !open.buffer.is_taken()) {
                sleep(LOOK_EVERY).await;
            }
        };
        // What is not out by then stays.
        let _ = timeout(within, empty).await;
    }
}

impl OpenRing {
    fn new(settings: &Arc<Ring>) -> OpenRing {
        let buffer = ring::of(&settings.name);
        buffer.describe(&settings.description, settings.size);
        let sender = |server: &RingServer| {
            let losses = losses::of(&target_name(settings, server));
            let sender = Sender {
                follower: buffer.follow(losses),
                server: server.clone(),
                connect_within: settings.connect_timeout.unwrap_or(CONNECT_WITHIN),
                write_within: settings.server_timeout,
                waiting: Waiting::default(),
                is_reported: false,
            };
            tokio::task::spawn_local(sender.run())
        };
        let senders = settings.servers.iter().map(sender).collect();
        OpenRing { settings: settings.clone(), buffer, senders }
    }
}

/// What a server of a ring is called where its losses are.
fn target_name(ring: &Ring, server: &RingServer) -> String {
    format!("ring@{}/{}", ring.name, server.name)
}

/// Sends a ring's lines to one server.
#[derive(Debug)]
struct Sender {
    follower: RingFollower,
    server: RingServer,
    connect_within: Duration,
    write_within: Option<Duration>,
    waiting: Waiting,
    /// It is known that the server cannot be reached.
    is_reported: bool,
}

impl Sender {
    async fn run(mut self) {
        loop {
            if let Err(error) = self.talk().await
                && !std::mem::replace(&mut self.is_reported, true)
            {
                self.follower.losses().is_missing(&error);
            }
            self.waiting.begin_line_again();
            sleep(CONNECT_AGAIN).await;
        }
    }

    /// One connection.
    ///
    /// # Errors
    /// There was none.
    async fn talk(&mut self) -> io::Result<()> {
        match self.server.address.clone() {
            Address::Inet(address) => {
                let stream = self.connect(TcpStream::connect(address)).await?;
                self.send(stream).await;
            }
            Address::Unix(path) => {
                let stream = self.connect(UnixStream::connect(path)).await?;
                self.send(stream).await;
            }
            // The configuration has none of these.
            Address::Abstract(_) | Address::Fd(_) => return Err(io::ErrorKind::Unsupported.into()),
        }
        Ok(())
    }

    async fn connect<S>(&self, connecting: impl Future<Output = io::Result<S>>) -> io::Result<S> {
        timeout(self.connect_within, connecting).await.unwrap_or_else(|_| Err(timed_out()))
    }

    /// Sends lines until the connection ends. From the first one that is out, the next failure is reported again.
    async fn send(&mut self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut read = [0; 512];
        loop {
            if self.waiting.is_empty() {
                let (waiting, framing) = (&mut self.waiting, self.server.framing);
                self.follower.take(TAKEN_MAX, |line| waiting.push(line, framing));
            }
            if self.waiting.is_empty() {
                tokio::select! {
                    // A syslog server sends nothing; what it sends nevertheless is of no use.
                    count = stream.read(&mut read) => match count {
                        Ok(1..) => {}
                        Ok(0) | Err(_) => return,
                    },
                    () = self.follower.news() => {}
                }
                continue;
            }
            let writing = stream.write(self.waiting.bytes());
            let written = match self.write_within {
                Some(limit) => timeout(limit, writing).await.unwrap_or_else(|_| Err(timed_out())),
                None => writing.await,
            };
            match written {
                Ok(count @ 1..) => {
                    self.is_reported = false;
                    self.waiting.written(count);
                }
                Ok(0) | Err(_) => return,
            }
        }
    }
}

fn timed_out() -> io::Error {
    io::Error::from_raw_os_error(nix::libc::ETIMEDOUT)
}

/// Lines that were taken and are not out yet.
#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Where the lines that are not out end.
    ends: VecDeque<usize>,
    /// So many bytes are out.
    done: usize,
    /// Where the line begins of which the next byte is a part.
    line: usize,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn push(&mut self, line: &[u8], framing: SyslogFraming) {
        match framing {
            SyslogFraming::Legacy => {
                self.bytes.extend_from_slice(line);
                self.bytes.push(b'\n');
            }
            SyslogFraming::OctetCount => {
                self.bytes.extend_from_slice(format!("{} ", line.len()).as_bytes());
                self.bytes.extend_from_slice(line);
            }
        }
        self.ends.push_back(self.bytes.len());
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.done..]
    }

    fn written(&mut self, count: usize) {
        self.done += count;
        while let Some(end) = self.ends.front().copied().filter(|end| *end <= self.done) {
            self.line = end;
            self.ends.pop_front();
        }
        if self.ends.is_empty() {
            *self = Waiting { bytes: std::mem::take(&mut self.bytes), ..Waiting::default() };
            self.bytes.clear();
        }
    }

    /// What was written of a line that is not whole is of no use to a new connection.
    fn begin_line_again(&mut self) {
        self.done = self.line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_is_sent_again_whole() {
        let mut waiting = Waiting::default();
        waiting.push(b"one", SyslogFraming::OctetCount);
        waiting.push(b"two", SyslogFraming::Legacy);
        assert_eq!(waiting.bytes(), b"3 onetwo\n");
        waiting.written(2);
        waiting.begin_line_again();
        assert_eq!(waiting.bytes(), b"3 onetwo\n");
        waiting.written(7);
        assert_eq!(waiting.bytes(), b"o\n");
        waiting.begin_line_again();
        assert_eq!(waiting.bytes(), b"two\n");
        waiting.written(4);
        assert!(waiting.is_empty() && waiting.bytes().is_empty());
    }
}
