//! Why a request or connection ended before its time: who, in which phase, and what the client is told.
//!
//! Status code, log letters and counters follow from one value (configuration manual, 8.5 "Session state at
//! disconnection").

/// Which end of the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// Who ended it, and how: the first letter of the log's termination state.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Cause {
    /// Nobody (`-`).
    #[default]
    None,
    /// The client aborted (`C`).
    ClientAborted,
    /// The client's timeout expired (`c`).
    ClientTimeout,
    /// The server aborted or refused (`S`).
    ServerAborted,
    /// The server's timeout expired (`s`).
    ServerTimeout,
    /// We refused: a rule, an invalid message (`P`).
    Proxy,
    /// Answered here, as the configuration wants (`L`).
    Local,
    /// A resource ran out here (`R`).
    Resource,
    /// A fault of our own (`I`).
    Internal,
    /// The server went down (`D`).
    Down,
    /// Ended by an operator, or by the end of the process (`K`).
    Killed,
}

/// How far it was: the second letter.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Phase {
    /// After everything, or without meaning (`-`).
    #[default]
    None,
    /// Waiting for a complete request (`R`).
    Request,
    /// Waiting for a slot on a server (`Q`).
    Queue,
    /// Connecting to a server (`C`).
    Connect,
    /// Waiting for the response's head (`H`).
    Headers,
    /// Data was being transferred (`D`).
    Data,
    /// The last bytes to the client (`L`).
    Last,
    /// Held in the tarpit (`T`).
    Tarpit,
}

/// An early end.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ended {
    /// Who.
    pub cause: Cause,
    /// When.
    pub phase: Phase,
    /// The status that the client gets if no response was begun; 0 closes without an answer.
    pub status: u16,
    /// The status in the log when it is another one than the client's; 0 is "none".
    pub logged: u16,
}

impl Cause {
    /// The log's letter.
    pub fn letter(self) -> u8 {
        match self {
            Cause::None => b'-',
            Cause::ClientAborted => b'C',
            Cause::ClientTimeout => b'c',
            Cause::ServerAborted => b'S',
            Cause::ServerTimeout => b's',
            Cause::Proxy => b'P',
            Cause::Local => b'L',
            Cause::Resource => b'R',
            Cause::Internal => b'I',
            Cause::Down => b'D',
            Cause::Killed => b'K',
        }
    }
}

impl Phase {
    /// The log's letter.
    pub fn letter(self) -> u8 {
        match self {
            Phase::None => b'-',
            Phase::Request => b'R',
            Phase::Queue => b'Q',
            Phase::Connect => b'C',
            Phase::Headers => b'H',
            Phase::Data => b'D',
            Phase::Last => b'L',
            Phase::Tarpit => b'T',
        }
    }
}

impl Ended {
    /// An end whose status follows from cause and phase.
    pub fn new(cause: Cause, phase: Phase) -> Ended {
        let status = match (cause, phase) {
            (Cause::ClientTimeout, Phase::Request) => 408,
            (Cause::ClientTimeout, Phase::Headers | Phase::Data) => 408,
            (Cause::ClientAborted, Phase::Request | Phase::Headers) => 0,
            (Cause::ClientAborted | Cause::ClientTimeout, _) => 0,
            (Cause::Proxy, Phase::Request) => 400,
            (Cause::Proxy, Phase::Headers) => 502,
            (Cause::ServerAborted, Phase::Headers) => 502,
            (Cause::ServerTimeout, Phase::Headers) => 504,
            (Cause::ServerAborted | Cause::ServerTimeout | Cause::Down, Phase::Queue | Phase::Connect) => 503,
            (Cause::Resource | Cause::Internal, _) => 500,
            (Cause::Killed, _) => 0,
            _ => 0,
        };
        let logged = match (cause, phase) {
            (Cause::ClientAborted, Phase::Request | Phase::Headers) => 400,
            _ => status,
        };
        Ended { cause, phase, status, logged }
    }

    /// A refusal with a status of its own.
    pub fn refused(cause: Cause, phase: Phase, status: u16) -> Ended {
        Ended { cause, phase, status, logged: status }
    }

    /// One side went away.
    pub fn aborted_by(side: Side, phase: Phase) -> Ended {
        Ended::new(if side == Side::Client { Cause::ClientAborted } else { Cause::ServerAborted }, phase)
    }

    /// One side was silent for too long.
    pub fn timeout(side: Side, phase: Phase) -> Ended {
        Ended::new(if side == Side::Client { Cause::ClientTimeout } else { Cause::ServerTimeout }, phase)
    }

    /// The server went down, and its sessions are not to go on.
    pub fn down() -> Ended {
        Ended::refused(Cause::Down, Phase::None, 503)
    }

    /// The process ends.
    pub fn aborted(phase: Phase) -> Ended {
        Ended::new(Cause::Killed, phase)
    }
}
