//! One lane: an address of Baton, its only server, and the clients that come by one after the other.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::judge::{self, Found, Message, find};
use crate::origin::Books;
use crate::support::PATIENCE;

/// Clients that come after each input, each on a connection of its own.
const VICTIMS: usize = 2;
/// How long nothing may come before an answer is taken for unfinished, and its server ends it. Ending one too early does no harm: the
/// client of that answer is the attacker's.
const UNFINISHED: Duration = Duration::from_millis(40);

/// How the report of a victim begins.
pub const POISONED: &str = "POISONED:";

pub struct Lane {
    pub baton: SocketAddr,
    pub books: Arc<Books>,
    /// Inputs that reached the server whole.
    pub forwarded: usize,
}

impl Lane {
    /// Sends one input as a client. What went wrong, if anything.
    pub fn request(&mut self, number: usize, input: &[u8]) -> Vec<String> {
        let mut wrong = Vec::new();
        let before = self.books.requests.load(Ordering::SeqCst);
        let down = self.exchange(input, None).unwrap_or_else(|error| {
            wrong.push(format!("the connection of the input: {error}"));
            Vec::new()
        });
        let answered = match responses(&down) {
            Ok((messages, _)) => messages.iter().filter(|message| message.field("x-origin").is_some()).count(),
            Err(why) => {
                wrong.push(format!("the client of the input read {:?}: {why}", down.escape_ascii().to_string()));
                0
            }
        };
        self.forwarded += answered.min(1);
        self.victims(number, &mut wrong);
        // What Baton took for one request, the origin must have taken for one.
        let read = self.books.requests.load(Ordering::SeqCst) - before;
        if read != answered + VICTIMS {
            wrong.push(format!("the origin read {read} requests, Baton forwarded {}", answered + VICTIMS));
        }
        self.ambiguous(&mut wrong);
        wrong
    }

    /// Has one input sent as an answer.
    pub fn response(&mut self, number: usize) -> Vec<String> {
        let mut wrong = Vec::new();
        let request = format!("GET /answer/{number} HTTP/1.1\r\nHost: a\r\n\r\n");
        let books = self.books.clone();
        let down = self.exchange(request.as_bytes(), Some(&books)).unwrap_or_else(|error| {
            wrong.push(format!("the connection of the input: {error}"));
            Vec::new()
        });
        match responses(&down) {
            Ok((messages, rest)) => {
                let last = messages.iter().filter(|message| !message.start[1].starts_with('1')).count();
                if last > 1 || (last == 1 && rest > 0) {
                    wrong.push(format!("one request had several answers: {:?}", down.escape_ascii().to_string()));
                }
                let own = |message: &Message| message.start[1] != "502" && message.start[1] != "504";
                self.forwarded += usize::from(last == 1 && messages.last().is_some_and(own));
            }
            Err(why) => wrong.push(format!("the client read {:?}: {why}", down.escape_ascii().to_string())),
        }
        if number % 2 == 1
            && let Some(mut server) = self.take_server()
        {
            // An answer to nobody, on a connection that is kept: nobody may get it.
            _ = server.write_all(b"HTTP/1.1 200 OK\r\nX-Origin: /unasked\r\nContent-Length: 3\r\n\r\nbad");
        }
        self.victims(number, &mut wrong);
        self.ambiguous(&mut wrong);
        wrong
    }

    fn take_server(&self) -> Option<TcpStream> {
        self.books.raw.lock().ok()?.take()
    }

    fn victims(&self, number: usize, wrong: &mut Vec<String>) {
        for victim in 0..VICTIMS {
            let target = format!("/victim/{number}/{victim}");
            let request = format!("GET {target} HTTP/1.1\r\nHost: v\r\n\r\n");
            let down = match self.exchange(request.as_bytes(), None) {
                Ok(down) => down,
                Err(error) => {
                    wrong.push(format!("{POISONED} victim {victim} was refused: {error}"));
                    continue;
                }
            };
            let is_own = |message: &Message| {
                message.start[1] == "200"
                    && message.body == target.as_bytes()
                    && message.field("x-origin") == Some(target.as_bytes())
            };
            if !matches!(responses(&down), Ok((messages, 0)) if messages.len() == 1 && is_own(&messages[0])) {
                let read = down.escape_ascii().to_string();
                wrong.push(format!("{POISONED} victim {victim} asked for {target} and read {read:?}"));
            }
        }
    }

    fn ambiguous(&self, wrong: &mut Vec<String>) {
        wrong.append(&mut self.books.ambiguous.lock().expect("no lane has panicked"));
    }

    /// Sends bytes and the end of the stream on a new connection, and reads to the end. `server`: an answer that is not whole is ended.
    fn exchange(&self, bytes: &[u8], server: Option<&Books>) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.baton)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(if server.is_some() { UNFINISHED } else { PATIENCE }))?;
        // Baton may have seen enough before it has read all.
        match stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write)) {
            Err(error) if !is_gone(error.kind()) => return Err(error),
            _ => {}
        }
        let (mut down, mut room) = (Vec::new(), [0; 8192]);
        let mut waited = server.is_none();
        loop {
            match stream.read(&mut room) {
                Ok(0) => return Ok(down),
                Ok(count) => down.extend_from_slice(&room[..count]),
                Err(error) if is_gone(error.kind()) => return Ok(down),
                Err(error) if error.kind() == ErrorKind::WouldBlock && !waited => {
                    let Some(server) = self.take_server() else { continue };
                    _ = server.shutdown(Shutdown::Both);
                    stream.set_read_timeout(Some(PATIENCE))?;
                    waited = true;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_gone(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::NotConnected)
}

/// The responses that a client has read, and how many bytes of an unfinished one follow.
fn responses(mut down: &[u8]) -> Result<(Vec<Message>, usize), String> {
    let mut messages = Vec::new();
    while !down.is_empty() {
        match judge::response(down, true) {
            Found::Message(message) => {
                down = &down[message.len..];
                messages.push(message);
            }
            Found::Partial => break,
            Found::Bad(why, _) => return Err(why),
        }
    }
    if find(down, b"\r\n\r\n").is_none() && !down.is_empty() {
        return Err("half a head".into());
    }
    Ok((messages, down.len()))
}
