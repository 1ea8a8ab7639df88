//! One peer: its lines are taken apart, its commands are answered one after the other, each answer is written before the next
//! command is looked at. A peer that says nothing, or reads nothing, for `stats timeout` is left.
//!
//! A long answer is made in pieces: the next one is asked for when the one before is written, so that a peer that reads slowly costs one
//! piece of memory, and nobody's time.

use std::any::Any;
use std::time::Duration;

use baton_kernel::output::ring::RingReader;
use baton_model::{AccessLevel, Author, SeverityOutput, StatsSocket};
use socket2::Socket;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::answer::CommandResponse;
use super::connection::Connection;
use super::line::{self, Input, Line, Step};
use super::listener::SessionSlot;
use super::row;
use super::sessions::SessionListing;
use super::{Commands, Kind};

/// Bytes read at once.
const READ_BYTES: usize = 4096;
/// Bytes of a ring that are written at a time.
const EVENTS_BYTES: usize = 16 * 1024;
/// Bytes that are read and dropped after the last answer, so that closing does not take it away from a peer that still sends.
const LINGER_BYTES_MAX: usize = 64 * 1024;
/// How long that may take.
const LINGER: Duration = Duration::from_secs(1);

/// A command for the change path, and the way back.
#[derive(Debug)]
pub(crate) struct Question {
    /// The command: its place in the table.
    pub row: usize,
    /// Its words.
    pub call: Call,
    /// What is left of it after earlier pieces of its answer.
    pub rest: Option<Rest>,
    /// Takes the answer; who left does not want it any more.
    pub reply: oneshot::Sender<Given>,
    /// The connection itself, for a command that goes on in another language.
    pub socket: Option<Socket>,
}

/// What is left of a command: its own matter.
pub(crate) type Rest = Box<dyn Any>;

/// What comes back to a session.
#[derive(Debug)]
pub(crate) enum Given {
    /// The whole answer.
    Whole(CommandResponse),
    /// A piece of it, and how to go on; `None`: it was the last one.
    Piece(String, Option<Rest>),
    /// Sessions, which cores tell the session itself.
    Sessions(SessionListing),
    /// Nothing yet: to be asked again after this time.
    Later(Duration, Rest),
}

/// A command as it was written.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// All its words.
    pub words: Vec<String>,
    /// How many of them are the command's name.
    pub name_words: usize,
    /// What followed the line.
    pub payload: Option<Vec<u8>>,
    /// What the session may do.
    pub level: AccessLevel,
    /// Who it is.
    pub by: Author,
    /// The session is in `experimental-mode`.
    pub is_experimental: bool,
}

impl Call {
    /// An argument; a missing one reads as an empty word.
    pub fn arg(&self, index: usize) -> &str {
        self.words.get(self.name_words + index).map_or("", String::as_str)
    }

    /// All arguments.
    pub fn args(&self) -> &[String] {
        self.words.get(self.name_words..).unwrap_or_default()
    }
}

/// What a session remembers.
#[derive(Debug)]
pub(crate) struct Session {
    /// What it may do; it can only become less.
    pub level: AccessLevel,
    /// Who it is.
    pub by: Author,
    /// What stands in front of messages.
    pub severity: SeverityOutput,
    /// `prompt`: it goes on after a line.
    pub is_interactive: bool,
    /// `expert-mode`.
    pub is_expert: bool,
    /// `experimental-mode`.
    pub is_experimental: bool,
    /// The longest silence.
    pub timeout: Duration,
    /// `quit`.
    pub is_over: bool,
    /// `show events`: what the response consists of.
    pub following: Option<Following>,
    exposes_listeners: bool,
    /// What it understands.
    pub commands: Commands,
}

/// The lines of a ring as a response.
#[derive(Debug)]
pub(crate) struct Following {
    pub reader: RingReader,
    /// It goes on with lines that come, until the peer sends something.
    pub waits: bool,
}

/// How a line ended.
enum After {
    Next,
    Close,
    /// The connection is somebody else's now.
    Taken(Box<Question>),
}

/// Speaks with a peer until it has nothing more to say.
pub(super) async fn serve(connection: Connection, socket: StatsSocket, by: Author, place: SessionSlot) {
    let settings = *place.shared.settings.borrow();
    let mut session = Session {
        level: socket.level,
        by,
        severity: socket.severity,
        is_interactive: false,
        is_expert: false,
        is_experimental: false,
        timeout: settings.timeout,
        is_over: false,
        following: None,
        exposes_listeners: socket.exposes_listeners,
        commands: place.shared.commands,
    };
    let mut input = Input::new(settings.line_bytes_max);
    let taken = converse(&connection, &mut session, &mut input, &place).await;
    match taken {
        Some(question) => {
            let question = Question { socket: Some(connection.into_socket()), ..*question };
            // A process that ends answers nobody.
            let _ = place.shared.ask.send(question).await;
        }
        None => linger(&connection).await,
    }
}

/// Lines until the end; a command that takes the connection over is given back.
async fn converse(
    connection: &Connection,
    session: &mut Session,
    input: &mut Input,
    place: &SessionSlot,
) -> Option<Box<Question>> {
    let mut room = [0; READ_BYTES];
    let mut has_answered = false;
    loop {
        match input.step() {
            Step::Line(line) => match obey(connection, session, place, line).await {
                After::Next => has_answered = true,
                After::Close => return None,
                After::Taken(question) => return Some(question),
            },
            Step::Payload => {
                if session.is_interactive && !write(connection, session, b"+ ").await {
                    return None;
                }
            }
            Step::TooLong => return None,
            // Without a prompt what came at once is answered, and nothing else is waited for.
            Step::Wait if has_answered && !session.is_interactive => return None,
            Step::Wait => match timeout(session.timeout, connection.read(&mut room)).await {
                Ok(Ok(count)) if count > 0 => input.push(&room[..count]),
                _ => return None,
            },
        }
    }
}

/// The commands of one line.
async fn obey(connection: &Connection, session: &mut Session, place: &SessionSlot, line: Line) -> After {
    let Some(commands) = line::commands(&line.text) else {
        let text = format!("Too many commands on a line, {} are the most.", line::COMMANDS_MAX);
        let bytes = CommandResponse::error(text).render(session.severity);
        write(connection, session, &bytes).await;
        return After::Close;
    };
    let last = commands.len() - 1;
    for (number, words) in commands.into_iter().enumerate() {
        let payload = line.payload.clone().filter(|_| number == last);
        let answer = match command(session, words, payload) {
            Doing::Answered(answer) => answer,
            Doing::Asks(row, Kind::Takes, call) => {
                let question = Question { row, call, rest: None, reply: oneshot::channel().0, socket: None };
                return if session.exposes_listeners { After::Taken(Box::new(question)) } else { After::Close };
            }
            Doing::Asks(row, Kind::Own(_) | Kind::Asked, call) => {
                match asked(connection, session, place, row, call).await {
                    Some(answer) => answer,
                    None => return After::Close,
                }
            }
        };
        if session.is_over {
            return After::Close;
        }
        if let Some(following) = session.following.take()
            && !follow(connection, session, following).await
        {
            return After::Close;
        }
        let mut bytes = answer.render(session.severity);
        if session.is_interactive {
            bytes.extend_from_slice(b"> ");
        }
        if !write(connection, session, &bytes).await {
            return After::Close;
        }
    }
    After::Next
}

/// Has a command answered, and writes all of its answer but the end, which is given back. `None`: the session is over.
async fn asked(
    connection: &Connection,
    session: &Session,
    place: &SessionSlot,
    row: usize,
    call: Call,
) -> Option<CommandResponse> {
    let mut rest = None;
    loop {
        let (reply, answer) = oneshot::channel();
        let question = Question { row, call: call.clone(), rest: rest.take(), reply, socket: None };
        place.shared.ask.send(question).await.ok()?;
        match answer.await.ok()? {
            Given::Whole(answer) => return Some(answer),
            Given::Piece(text, None) => return Some(CommandResponse::Data(text)),
            Given::Piece(text, next) => {
                if !write(connection, session, text.as_bytes()).await {
                    return None;
                }
                rest = next;
            }
            Given::Sessions(mut listing) => {
                while let Some(text) = listing.next().await {
                    if !write(connection, session, text.as_bytes()).await {
                        return None;
                    }
                }
                return Some(listing.end());
            }
            Given::Later(time, next) => {
                tokio::time::sleep(time).await;
                rest = Some(next);
            }
        }
    }
}

/// Writes lines of a ring, some at a time; false when the peer is gone.
async fn follow(connection: &Connection, session: &Session, Following { mut reader, waits }: Following) -> bool {
    let mut room = [0; READ_BYTES];
    loop {
        if waits {
            tokio::select! {
                biased;
                // Whatever it is, it ends this and means nothing else.
                read = connection.read(&mut room) => return matches!(read, Ok(1..)),
                () = reader.news() => {}
            }
        }
        let mut bytes = Vec::new();
        reader.next_lines(EVENTS_BYTES, |line| {
            bytes.extend_from_slice(line);
            bytes.push(b'\n');
        });
        if bytes.is_empty() && !waits {
            return true;
        }
        if !write(connection, session, &bytes).await {
            return false;
        }
    }
}

/// What becomes of a command.
enum Doing {
    Answered(CommandResponse),
    Asks(usize, Kind, Call),
}

fn command(session: &mut Session, words: Vec<String>, payload: Option<Vec<u8>>) -> Doing {
    let Commands(rows) = session.commands;
    let Some((at, row)) = row::find(rows, &words) else {
        return Doing::Answered(CommandResponse::info(row::unknown(rows, &words)));
    };
    if session.level < row.level {
        return Doing::Answered(CommandResponse::error("Permission denied"));
    }
    let call = Call {
        words,
        name_words: row.words.len(),
        payload,
        level: session.level,
        by: session.by.clone(),
        is_experimental: session.is_experimental,
    };
    match row.act {
        Kind::Own(act) => Doing::Answered(act(session, &call)),
        kind @ (Kind::Asked | Kind::Takes) => Doing::Asks(at, kind, call),
    }
}

/// Writes everything; false when the peer does not read, or is gone.
async fn write(connection: &Connection, session: &Session, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match timeout(session.timeout, connection.write(bytes)).await {
            Ok(Ok(count)) if count > 0 => bytes = &bytes[count..],
            _ => return false,
        }
    }
    true
}

/// Lets the peer read the last answer: a close while its bytes wait unread could take it away.
async fn linger(connection: &Connection) {
    connection.finish();
    let drain = async {
        let (mut room, mut left) = ([0; READ_BYTES], LINGER_BYTES_MAX);
        while let Ok(count) = connection.read(&mut room).await {
            left = left.saturating_sub(count);
            if count == 0 || left == 0 {
                break;
            }
        }
    };
    // Who still sends after that is cut off.
    let _ = timeout(LINGER, drain).await;
}
