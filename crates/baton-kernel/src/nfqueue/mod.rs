//! Packets that rules of netfilter send to a process, which says what becomes of them: an NFQUEUE.
//!
//! A [`PacketQueue`] is set up to fail open: what comes when its process is behind passes as if there were no rule, and so it does, by
//! the rule's own word `bypass`, when there is no process any more. What the process had not yet decided is dropped by the
//! kernel when the queue closes; a client takes it for a lost packet.
//!
//! Here is the kernel's protocol (`linux/netfilter/nfnetlink_queue.h`). Which packets come is up to the rules; a packet is read,
//! never changed. A packet that is accepted goes on behind the chain whose rule sent it here.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::netlink::{Attributes, NetlinkError, Protocol, Reply, Request, Socket};

mod syn;

pub use syn::Syn;

/// `NFNL_SUBSYS_QUEUE`, in the high byte of a message's kind.
const SUBSYSTEM: u16 = 3 << 8;
/// Kinds of messages (`enum nfqnl_msg_types`).
const PACKET: u16 = SUBSYSTEM;
const VERDICT: u16 = SUBSYSTEM | 1;
const CONFIG: u16 = SUBSYSTEM | 2;
const VERDICT_BATCH: u16 = SUBSYSTEM | 3;
/// Attributes of a configuration (`enum nfqnl_attr_config`).
const CONFIG_COMMAND: u16 = 1;
const CONFIG_COPY: u16 = 2;
const CONFIG_LENGTH: u16 = 3;
const CONFIG_MASK: u16 = 4;
const CONFIG_FLAGS: u16 = 5;
/// `NFQNL_CFG_CMD_BIND`, `NFQNL_COPY_PACKET`, `NFQA_CFG_F_FAIL_OPEN`.
const BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
const FAIL_OPEN: u32 = 1;
/// Attributes of a packet and of a verdict (`enum nfqnl_attr_type`).
const PACKET_HEADER: u16 = 1;
const VERDICT_HEADER: u16 = 2;
const PACKET_BYTES: u16 = 10;
/// Length of struct nfgenmsg.
const FIXED: usize = 4;
/// Bytes of each packet that are copied: the headers of IPv6 and TCP with all of their options.
const COPY_BYTES: u32 = 160;
/// Numbers of queues to choose from: few programs count so far.
const NUMBERS: std::ops::RangeInclusive<u16> = 47_100..=47_163;
/// Room for packets that wait to be read, bytes; each takes about 1 KiB there.
const ROOM: usize = 8 << 20;

/// How often it is looked whether packets wait.
const QUIET_PAUSE: Duration = Duration::from_micros(200);

/// What is done with a queued packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueVerdict {
    /// It is gone.
    Drop,
    /// It goes on behind the chain that sent it here.
    Accept,
}

impl QueueVerdict {
    /// `NF_DROP`, `NF_ACCEPT`.
    fn number(self) -> u32 {
        match self {
            QueueVerdict::Drop => 0,
            QueueVerdict::Accept => 1,
        }
    }
}

/// A packet that waits for a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its number; later packets of a queue have higher ones.
    pub id: u32,
    /// From its IP header on, cut off after some hundred bytes.
    pub bytes: Vec<u8>,
}

/// A queue of this process, in the network namespace of the thread that opened it. It ends when dropped.
#[derive(Debug)]
pub struct PacketQueue {
    socket: Socket,
    number: u16,
}

impl PacketQueue {
    /// Opens one with a number that nobody uses. At most `length` packets wait in it; what comes above passes.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, without NFQUEUE in the kernel (`EINVAL`, `EOPNOTSUPP`), or when all numbers from 47100 to 47163
    /// are in use (`EBUSY`).
    pub fn open(length: u32) -> Result<PacketQueue, NetlinkError> {
        let used = open_queues().unwrap_or_default();
        let mut socket = Socket::open(Protocol::Netfilter)?;
        socket.make_room(ROOM);
        let mut last = NetlinkError::Refused { message: 0, errno: Errno::EBUSY, said: None };
        for number in NUMBERS.filter(|number| used.iter().all(|queue| queue.number != *number)) {
            match socket.ask(&bind(number)) {
                Ok(_) => {
                    socket.ask(&configure(number, length))?;
                    return Ok(PacketQueue { socket, number });
                }
                // Somebody was faster: both of them mean that the number is another process's.
                Err(fault) if matches!(fault.errno(), Some(Errno::EBUSY)) => last = fault,
                Err(fault) if fault.is_no_right() && is_taken(number) => last = fault,
                Err(fault) => return Err(fault),
            }
        }
        Err(last)
    }

    /// Its number, which rules name.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Packets that have come; none when none wait. Never blocks.
    ///
    /// # Errors
    /// Of the socket.
    pub fn packets(&mut self) -> Result<Vec<Packet>, NetlinkError> {
        Ok(self.socket.events()?.iter().filter_map(packet).collect())
    }

    /// Says what becomes of one packet. One that is not there any more is ignored.
    ///
    /// # Errors
    /// Of the socket.
    pub fn decide(&mut self, id: u32, verdict: QueueVerdict) -> Result<(), NetlinkError> {
        self.socket.tell(&decision(VERDICT, self.number, id, verdict))
    }

    /// Says what becomes of every packet that waits for a verdict, up to this one, in their order.
    ///
    /// # Errors
    /// Of the socket.
    pub fn decide_up_to(&mut self, id: u32, verdict: QueueVerdict) -> Result<(), NetlinkError> {
        self.socket.tell(&decision(VERDICT_BATCH, self.number, id, verdict))
    }

    /// Waits for a packet, for `wake` to become readable or closed, or for so long (`None`: as long as it takes). Says
    /// whether it was `wake`.
    ///
    /// # Errors
    /// Of poll(2).
    pub fn wait(&self, wake: Option<BorrowedFd<'_>>, longest: Option<Duration>) -> io::Result<bool> {
        // Up, so that nobody who waits for a moment turns in circles until it has come.
        let timeout = longest.map(|longest| longest.as_micros().div_ceil(1000).min(u128::from(u16::MAX)) as u16);
        let timeout = timeout.map_or(PollTimeout::NONE, PollTimeout::from);
        let packets = PollFd::new(self.socket.as_fd(), PollFlags::POLLIN);
        let mut both: Vec<_> = wake.into_iter().map(|wake| PollFd::new(wake, PollFlags::POLLIN)).collect();
        both.push(packets);
        match poll(&mut both, timeout) {
            Ok(_) => Ok(wake.is_some() && both[0].any() == Some(true)),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// A queue that some process has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Its number.
    pub number: u16,
    /// Packets that wait in it.
    pub waiting: u32,
}

/// The queues that processes have open in this network namespace.
///
/// # Errors
/// When the kernel has no NFQUEUE, or does not tell.
pub fn open_queues() -> io::Result<Vec<Open>> {
    // Of this thread: the namespace of the process's first thread may be another one.
    let text = fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue")?;
    Ok(text.lines().filter_map(open_queue).collect())
}

/// A line: number, port of the netlink socket, packets waiting, and more.
fn open_queue(line: &str) -> Option<Open> {
    let mut words = line.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    Some(Open { number, waiting: words.nth(1)?.parse().ok()? })
}

/// Waits for a moment in which no packet waits in any queue, for so long at most, and gives the queues that still have some.
///
/// Whoever removes a chain that packets enter at a hook does well to ask first: at that moment the kernel drops what waits in all
/// queues of the network namespace, whichever chains sent it there.
pub fn quiet(longest: Duration) -> Vec<Open> {
    let end = Instant::now() + longest;
    loop {
        // Without NFQUEUE in the kernel nothing waits.
        let busy: Vec<_> = open_queues().unwrap_or_default().into_iter().filter(|queue| queue.waiting > 0).collect();
        if busy.is_empty() || Instant::now() >= end {
            return busy;
        }
        thread::sleep(QUIET_PAUSE);
    }
}

fn is_taken(number: u16) -> bool {
    open_queues().is_ok_and(|open| open.iter().any(|queue| queue.number == number))
}

/// struct nfgenmsg: any family, version 0, and the queue's number.
fn fixed(number: u16) -> [u8; FIXED] {
    let [high, low] = number.to_be_bytes();
    [libc::AF_UNSPEC as u8, 0, high, low]
}

fn bind(number: u16) -> Request {
    // struct nfqnl_msg_config_cmd: the command, nothing, and a family that nobody looks at any more.
    Request::new(CONFIG, 0, &fixed(number), &Attributes::new().raw(CONFIG_COMMAND, &[BIND, 0, 0, 0]))
}

fn configure(number: u16, length: u32) -> Request {
    let [a, b, c, d] = COPY_BYTES.to_be_bytes();
    let attributes = Attributes::new()
        .raw(CONFIG_COPY, &[a, b, c, d, COPY_PACKET])
        .u32_be(CONFIG_LENGTH, length)
        .u32_be(CONFIG_MASK, FAIL_OPEN)
        .u32_be(CONFIG_FLAGS, FAIL_OPEN);
    Request::new(CONFIG, 0, &fixed(number), &attributes)
}

fn decision(kind: u16, number: u16, id: u32, verdict: QueueVerdict) -> Request {
    let mut header = [0; 8];
    header[..4].copy_from_slice(&verdict.number().to_be_bytes());
    header[4..].copy_from_slice(&id.to_be_bytes());
    Request::new(kind, 0, &fixed(number), &Attributes::new().raw(VERDICT_HEADER, &header))
}

fn packet(reply: &Reply) -> Option<Packet> {
    if reply.kind != PACKET {
        return None;
    }
    let attributes = reply.attributes(FIXED);
    let id = attributes.find(PACKET_HEADER)?.u32_be()?;
    let bytes = attributes.find(PACKET_BYTES).map(|found| found.value.to_vec()).unwrap_or_default();
    Some(Packet { id, bytes })
}

#[cfg(test)]
mod tests;
