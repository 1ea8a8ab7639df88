//! The thread that has the queue: it reads packets as they come, and lets them go when it is told to, or at the deadline.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use baton_kernel::nfqueue::{Packet, PacketQueue, QueueVerdict, Syn};

use super::room::{Arrival, HeldPackets, Tally};
use crate::KernelError;

/// Connections that are let go at once. The queue of a listening socket often has room for no more than 128.
const RELEASED_AT_ONCE: usize = 64;
/// Reads before something else is looked at; each has one packet.
const READS_AT_ONCE: usize = 4096;
/// What the server has to accept them, before the next ones come.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a packet may be on its way from a rule that is gone.
const LINGER: Duration = Duration::from_millis(10);

/// The thread, and how it is told what to do: one byte to let go, the end of the pipe to end.
#[derive(Debug)]
pub(super) struct QueueThread {
    thread: JoinHandle<Result<Tally, KernelError>>,
    wake: PipeWriter,
}

/// What happens to packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// They wait.
    Holding,
    /// Those who wait go, some at a time, and new ones wait behind them.
    Releasing,
    /// They pass.
    Passing,
}

impl QueueThread {
    /// Starts it. From the first rule on that sends packets to the queue they are held, `limit` at most, until the deadline at the
    /// latest.
    pub fn start(queue: PacketQueue, limit: usize, deadline: Instant) -> io::Result<QueueThread> {
        let (told, wake) = io::pipe()?;
        let work = move || Loop { queue, room: HeldPackets::new(limit), phase: Phase::Holding, deadline }.run(told);
        let thread = thread::Builder::new().name("baton-hold-queue".to_owned()).spawn(work)?;
        Ok(QueueThread { thread, wake })
    }

    /// Lets everybody go, in order; new ones pass behind them.
    pub fn release(&mut self) {
        // One that has ended has let go already.
        let _ = self.wake.write_all(&[1]);
    }

    /// Ends it, once no rule sends packets any more.
    pub fn finish(self) -> Result<Tally, KernelError> {
        drop(self.wake);
        self.thread.join().unwrap_or_else(|_| Err(KernelError::new("thread of the queue", "it panicked", "")))
    }
}

struct Loop {
    queue: PacketQueue,
    room: HeldPackets,
    phase: Phase,
    deadline: Instant,
}

impl Loop {
    fn run(mut self, told: PipeReader) -> Result<Tally, KernelError> {
        let mut told = Some(told);
        loop {
            let is_ending = told.is_none();
            let is_told = self.wait(told.as_ref()).map_err(|error| KernelError::io("waiting for packets", &error))?;
            let has_come = self.take().map_err(|fault| KernelError::netlink("packets of the queue", &fault))?;
            if is_told && self.is_end(&mut told) {
                told = None;
            }
            if self.phase == Phase::Holding && Instant::now() >= self.deadline {
                self.phase = Phase::Releasing;
            }
            if self.phase == Phase::Releasing {
                self.let_go().map_err(|fault| KernelError::netlink("verdicts on packets", &fault))?;
            }
            if is_ending && !has_come && self.phase == Phase::Passing {
                return Ok(self.room.tally());
            }
        }
    }

    /// Waits for what matters in this phase. Says whether we were told something.
    fn wait(&self, told: Option<&PipeReader>) -> io::Result<bool> {
        let longest = match self.phase {
            Phase::Holding => Some(self.deadline.saturating_duration_since(Instant::now())),
            Phase::Releasing => Some(PAUSE),
            Phase::Passing if told.is_none() => Some(LINGER),
            Phase::Passing => None,
        };
        self.queue.wait(told.map(AsFd::as_fd), longest)
    }

    /// Reads what we were told. Both words mean that everybody may go; says whether it was the end.
    fn is_end(&mut self, told: &mut Option<PipeReader>) -> bool {
        if self.phase == Phase::Holding {
            self.phase = Phase::Releasing;
        }
        let read = told.as_mut().map(|told| told.read(&mut [0; 16]));
        !matches!(read, Some(Ok(1..)))
    }

    /// Takes in all that has come, because what is told next is about all of it. Says whether that was anything.
    fn take(&mut self) -> Result<bool, baton_kernel::netlink::NetlinkError> {
        for turn in 0..READS_AT_ONCE {
            let packets = self.queue.packets()?;
            if packets.is_empty() {
                return Ok(turn > 0);
            }
            let now = Instant::now();
            for packet in &packets {
                self.judge(packet, now)?;
            }
        }
        Ok(true)
    }

    fn judge(&mut self, packet: &Packet, now: Instant) -> Result<(), baton_kernel::netlink::NetlinkError> {
        if self.phase == Phase::Passing {
            return self.queue.decide(packet.id, QueueVerdict::Accept);
        }
        match self.room.arrive(packet.id, Syn::read(&packet.bytes), now) {
            Arrival::Wait => Ok(()),
            Arrival::Pass => self.queue.decide(packet.id, QueueVerdict::Accept),
            Arrival::Drop => self.queue.decide(packet.id, QueueVerdict::Drop),
            Arrival::Replace(older) => self.queue.decide(older, QueueVerdict::Drop),
        }
    }

    /// Some of those who wait go.
    fn let_go(&mut self) -> Result<(), baton_kernel::netlink::NetlinkError> {
        if let Some(last) = self.room.release(RELEASED_AT_ONCE, Instant::now()) {
            self.queue.decide_up_to(last, QueueVerdict::Accept)?;
        }
        if self.room.is_empty() {
            self.phase = Phase::Passing;
        }
        Ok(())
    }
}
