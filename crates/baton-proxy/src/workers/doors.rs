//! How connections of other processes get to a core, and those of a core back to it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::{Command, Workers};
use crate::moving::{Arrival, Departure, IdleServer, InTransit, MoveTerms, Moved, Mover, ServerArrival, StayReason};

/// A connection in a command, which can be copied; it can be taken once.
#[derive(Debug)]
pub struct Once<T>(Arc<Mutex<Option<Box<T>>>>);

impl<T> Clone for Once<T> {
    fn clone(&self) -> Once<T> {
        Once(Arc::clone(&self.0))
    }
}

impl<T> Once<T> {
    fn of(arrival: T) -> Once<T> {
        Once(Arc::new(Mutex::new(Some(Box::new(arrival)))))
    }

    /// The connection.
    pub fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map(|arrival| *arrival)
    }
}

/// The way of a connection to one core. It keeps no core from its end.
#[derive(Clone, Debug)]
pub struct CoreDoor(mpsc::WeakUnboundedSender<(Command, oneshot::Sender<()>)>);

impl CoreDoor {
    /// Lets a connection in. It is closed when the core has ended.
    pub fn let_in(&self, arrival: Arrival) {
        if let Some(core) = self.0.upgrade() {
            let _ = core.send((Command::Adopt(Once::of(arrival)), oneshot::channel().0));
        }
    }

    /// Lets an idle connection to a server in.
    pub fn let_server_in(&self, arrival: ServerArrival) {
        if let Some(core) = self.0.upgrade() {
            let _ = core.send((Command::AdoptServer(Once::of(arrival)), oneshot::channel().0));
        }
    }
}

/// A place for a connection that is to come.
#[derive(Debug)]
pub struct Seat {
    /// The way to its core.
    pub door: CoreDoor,
    /// Counts it among the open connections of that core.
    pub counted: InTransit,
}

/// What leaves the cores.
#[derive(Debug)]
pub struct Departures {
    moved: Moved,
    doors: Vec<CoreDoor>,
}

/// A connection that leaves.
#[derive(Debug)]
pub enum Leaver {
    /// A client's.
    Client(Departure),
    /// An idle one to a server.
    Server(IdleServer),
}

impl Departures {
    /// The next one, those to servers first; `None`: there will be none. May be abandoned and begun again.
    pub async fn next(&mut self, with_clients: bool) -> Option<Leaver> {
        let Moved { clients, servers, way: _ } = &mut self.moved;
        tokio::select! {
            biased;
            Some(server) = servers.recv() => Some(Leaver::Server(server)),
            client = clients.recv(), if with_clients => client.map(Leaver::Client),
            else => None,
        }
    }

    /// The next one of a client, if there is one.
    pub fn try_next(&mut self) -> Option<Departure> {
        self.moved.clients.try_recv().ok()
    }

    /// The next one to a server, if there is one.
    pub fn try_next_server(&mut self) -> Option<IdleServer> {
        self.moved.servers.try_recv().ok()
    }

    /// It took connections so long from here until they were given.
    pub fn took(&self, time: Duration) {
        self.moved.way.took(time);
    }

    /// Gives a connection back to its core, where it stays.
    pub fn give_back(&self, departure: Departure, reason: StayReason) {
        if let Some(door) = self.doors.get(departure.core) {
            door.let_in(departure.back(reason));
        }
    }

    /// None leaves any more: those that are here go back.
    pub fn close(&mut self) {
        self.moved.servers.close();
        while self.moved.servers.try_recv().is_ok() {}
        self.moved.clients.close();
        while let Ok(departure) = self.moved.clients.try_recv() {
            self.give_back(departure, StayReason::NoReply);
        }
    }
}

impl Drop for Departures {
    fn drop(&mut self) {
        self.close();
    }
}

impl Workers {
    /// Where connections leave, and where they come out.
    pub fn departures(&self, terms: MoveTerms) -> (Mover, Departures) {
        let (mover, moved) = Mover::new(terms);
        let doors = self.threads.iter().map(|worker| CoreDoor(worker.commands.downgrade())).collect();
        (mover, Departures { moved, doors })
    }

    /// The way to a core: another one for each turn.
    pub fn door(&self, turn: usize) -> Option<CoreDoor> {
        let worker = self.threads.get(turn % self.threads.len().max(1))?;
        Some(CoreDoor(worker.commands.downgrade()))
    }

    /// A place at the core with the fewest connections.
    pub fn seat(&self) -> Option<Seat> {
        let worker = self.threads.iter().min_by_key(|worker| worker.open.load(Ordering::Relaxed))?;
        Some(Seat { door: CoreDoor(worker.commands.downgrade()), counted: InTransit::count(&worker.open) })
    }
}
