//! A new process that stops at any step: it speaks the protocol, and whatever it does not say is left unsaid.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use baton_control::handover::channel::{Channel, Parked};
use baton_control::handover::kinds::MoveKinds;
use baton_control::handover::memory::ProcessMemory;
use baton_control::handover::message::{Connections, Hello, Message, Ready, Stop};
use baton_control::handover::wire::{VERSIONS, WireVersion};
use tokio::runtime::Runtime;

use crate::support::PATIENCE;

/// The new process's end of a conversation with process `pid`.
pub struct Taker {
    runtime: Runtime,
    channel: Channel,
    /// Sockets received.
    pub sockets: Vec<OwnedFd>,
    /// Connections received.
    pub given: Vec<OwnedFd>,
}

impl Taker {
    /// Connects and says nothing.
    pub fn connect(pid: u32) -> UnixStream {
        let address = SocketAddr::from_abstract_name(format!("baton-{pid}")).expect("a short name");
        UnixStream::connect_addr(&address).expect("the process listens at its address")
    }

    /// Asks for a handover, and is let in.
    pub fn ask(pid: u32) -> Taker {
        let mut stream = Taker::connect(pid);
        stream.write_all(b"{\"baton\":1,\"request\":\"handover\"}\n").expect("it listens");
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).expect("it answers");
        assert_eq!(answer, "{\"baton\":1,\"reply\":\"handover\"}\n");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let channel = runtime.block_on(async { Parked::new(stream).resume() }).expect("a channel");
        Taker { runtime, channel, sockets: Vec::new(), given: Vec::new() }
    }

    pub fn say(&mut self, message: Message) {
        self.runtime.block_on(self.channel.send(message, &[], PATIENCE)).expect("it listens");
    }

    /// The next message; descriptors that come with it are kept.
    pub fn hear(&mut self) -> Message {
        let message = self.runtime.block_on(self.channel.receive(PATIENCE)).expect("it answers");
        if let Message::Sockets(sockets) = &message {
            let fds = self.channel.take_fds(sockets.sockets.len()).expect("one for each");
            self.sockets.extend(fds);
        }
        if let Message::Tables(tables) = &message {
            drop(self.channel.take_fds(tables.tables.len()).expect("one for each"));
        }
        if let Message::Servers(servers) = &message {
            let fds = self.channel.take_fds(servers.servers.len()).expect("one for each");
            self.given.extend(fds);
        }
        if let Message::Give(give) = &message {
            let fds = self.channel.take_fds(give.descriptors as usize).expect("one for each");
            self.given.extend(fds);
        }
        message
    }

    pub fn hello(&mut self) -> Message {
        self.hello_in(VERSIONS)
    }

    /// Says which versions it speaks, and goes on in the one that is chosen.
    pub fn hello_in(&mut self, versions: &[u32]) -> Message {
        self.say(Message::Hello(Hello {
            versions: versions.to_vec(),
            pid: std::process::id(),
            program: "test".into(),
            after: None,
        }));
        let message = self.hear();
        if let Message::Welcome(welcome) = &message {
            assert!(versions.contains(&welcome.version), "{welcome:?}");
            self.channel.speak(WireVersion::of(welcome.version).expect("it was offered"));
        }
        message
    }

    /// Numbers its frames from 0 again.
    pub fn loses_count(&mut self) {
        self.channel.speak(self.channel.version());
    }

    /// From hello to the state, with every socket.
    pub fn receive_all(&mut self) {
        self.receive_all_in(VERSIONS);
    }

    /// In the best of these versions.
    pub fn receive_all_in(&mut self, versions: &[u32]) -> ProcessMemory {
        let Message::Welcome(welcome) = self.hello_in(versions) else { panic!("not welcome") };
        self.say(Message::Send);
        while self.sockets.len() < welcome.sockets as usize {
            assert!(matches!(self.hear(), Message::Sockets(_)));
        }
        self.say(Message::Received);
        loop {
            match self.hear() {
                Message::Tables(_) => {}
                Message::State(state) => return *state,
                other => panic!("no state, but {}", other.name()),
            }
        }
    }

    /// Says that it serves, and is confirmed. Connections do not move.
    pub fn ready(&mut self) {
        self.ready_for(0);
    }

    /// Connections that are described in this format, and need nothing else, move.
    pub fn ready_for(&mut self, moving: u32) {
        self.ready_with(moving, MoveKinds::default());
    }

    /// Connections that are described in this format, and need nothing but these, move.
    pub fn ready_with(&mut self, moving: u32, kinds: MoveKinds) {
        let taken = (0..self.sockets.len() as u32).collect();
        self.say(Message::Ready(Ready { pid: std::process::id(), taken, stop: Stop::Soft, moving, kinds }));
        assert!(matches!(self.hear(), Message::Released(_)));
    }

    /// The next message that is no report.
    pub fn hear_no_report(&mut self) -> Message {
        loop {
            let message = self.hear();
            if !matches!(message, Message::Report(_)) {
                return message;
            }
        }
    }

    /// The next message, which offers connections.
    pub fn hear_offer(&mut self) -> Connections {
        match self.hear_no_report() {
            Message::Connections(offer) => offer,
            other => panic!("{other:?}"),
        }
    }
}
