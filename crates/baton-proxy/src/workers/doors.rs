//! How connections of other processes get to a core, and those of a core back to it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::{Command, Workers};
use crate::moving::{Arrival, Departure, InTransit, Mover, StayReason};

/// A connection in a command, which can be copied; it can be taken once.
#[derive(Clone, Debug)]
pub struct Adoption(Arc<Mutex<Option<Box<Arrival>>>>);

impl Adoption {
    fn of(arrival: Arrival) -> Adoption {
        Adoption(Arc::new(Mutex::new(Some(Box::new(arrival)))))
    }

    /// The connection.
    pub fn take(&self) -> Option<Arrival> {
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
            let _ = core.send((Command::Adopt(Adoption::of(arrival)), oneshot::channel().0));
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
    departures: mpsc::UnboundedReceiver<Departure>,
    doors: Vec<CoreDoor>,
}

impl Departures {
    /// The next one; `None`: there will be none. May be abandoned and begun again.
    pub async fn next(&mut self) -> Option<Departure> {
        self.departures.recv().await
    }

    /// The next one, if there is one.
    pub fn try_next(&mut self) -> Option<Departure> {
        self.departures.try_recv().ok()
    }

    /// Gives a connection back to its core, where it stays.
    pub fn give_back(&self, departure: Departure, reason: StayReason) {
        if let Some(door) = self.doors.get(departure.core) {
            door.let_in(departure.back(reason));
        }
    }

    /// None leaves any more: those that are here go back.
    pub fn close(&mut self) {
        self.departures.close();
        while let Ok(departure) = self.departures.try_recv() {
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
    /// Where connections leave, and where they come out. Requests in flight have so long to end where they are; `None`: as
    /// long as they take.
    pub fn departures(&self, patience: Option<Duration>) -> (Mover, Departures) {
        let (mover, departures) = Mover::new(patience);
        let doors = self.threads.iter().map(|worker| CoreDoor(worker.commands.downgrade())).collect();
        (mover, Departures { departures, doors })
    }

    /// A place at the core with the fewest connections.
    pub fn seat(&self) -> Option<Seat> {
        let worker = self.threads.iter().min_by_key(|worker| worker.open.load(Ordering::Relaxed))?;
        Some(Seat { door: CoreDoor(worker.commands.downgrade()), counted: InTransit::count(&worker.open) })
    }
}
