//! A section at work: its connections, and the time that passes for it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use baton_kernel::process::uptime;
use baton_model::PeersSection;
use baton_peers::{
    Effect, INPUT_MAX, LinkId, PeerSettings, Produced, Section, SectionSettings, Shown, Start, TableSettings,
};
use baton_tables::Now;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;

use super::listening::Listening;
use super::target::{Stream, Target};
use super::{Figures, Plan};

/// Connections that are accepted at once, for each peer.
const ACCEPTED_PER_PEER: usize = 3;
/// How soon after a change the next one is looked for, while there are any, and at the latest.
const LOOK_FIRST: Duration = Duration::from_millis(5);
const LOOK_LATE: Duration = Duration::from_millis(80);
/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// How long it is waited until a peer has taken the last bytes.
const LAST_WITHIN: Duration = Duration::from_secs(1);

/// The time of tables, and of peers.
pub(super) fn now() -> Now {
    Now::from_millis(u64::try_from(uptime().as_millis()).unwrap_or(u64::MAX))
}

/// A section, its connections, and where it listens.
pub(super) struct Running {
    pub plan: Arc<PeersSection>,
    section: RefCell<Section>,
    targets: RefCell<Vec<Option<Arc<Target>>>>,
    listening: RefCell<Vec<Listening>>,
    links: RefCell<HashMap<LinkId, AbortHandle>>,
    /// Told when a connection may have something to send.
    wake: Notify,
    /// Told when it is to be looked at what is due.
    look: Notify,
    /// Room for connections that are accepted.
    pub room: Arc<Semaphore>,
    beat: Cell<Option<AbortGuard>>,
    date: String,
    figures: Arc<Figures>,
    /// This section's part of the figures.
    counted: Cell<(usize, usize)>,
}

/// Ends a task.
#[derive(Debug)]
struct AbortGuard(AbortHandle);

impl Drop for AbortGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Running {
    /// Begins. `before` is the section of that name that was there, whose links are closed. `None`: nothing can be shared, for lack of a local peer.
    pub fn start(
        plan: Plan,
        start: Start,
        before: Option<Rc<Running>>,
        (date, figures): (String, Arc<Figures>),
    ) -> Option<Rc<Running>> {
        let Plan { section: configured, tables, targets, listening } = plan;
        let local = Target::local(&configured).map(Arc::new);
        let target = |name: &str| match *name == *configured.local {
            true => local.clone(),
            false => targets.iter().find(|target| target.is_for(&configured.name, name)).cloned(),
        };
        let peer = |peer: &baton_model::Peer| PeerSettings {
            name: peer.name.clone(),
            address: target(&peer.name).map_or_else(|| "?".into(), |target| target.place()),
            shard: peer.shard,
        };
        let settings = SectionSettings {
            name: configured.name.clone(),
            local: configured.local.clone(),
            pid: std::process::id(),
            peers: configured.peers.iter().map(peer).collect(),
            shards: configured.shards,
            seed: now().as_millis() ^ (u64::from(std::process::id()) << 32),
        };
        let mut section = Section::new(settings, tables, start, now())?;
        if let Some(before) = &before {
            before.listening.borrow_mut().clear();
            if let Some(old) = before.stop() {
                section.succeed(old, now());
            }
        }
        let running = Rc::new(Running {
            section: RefCell::new(section),
            targets: RefCell::new(configured.peers.iter().map(|peer| target(&peer.name)).collect()),
            listening: RefCell::default(),
            links: RefCell::default(),
            wake: Notify::new(),
            look: Notify::new(),
            room: Arc::new(Semaphore::new(ACCEPTED_PER_PEER * configured.peers.len())),
            beat: Cell::default(),
            date,
            figures,
            counted: Cell::default(),
            plan: configured,
        });
        *running.listening.borrow_mut() =
            listening.into_iter().map(|place| Listening::start(&running, place)).collect();
        let beat = tokio::task::spawn_local(running.clone().beat()).abort_handle();
        running.beat.set(Some(AbortGuard(beat)));
        Some(running)
    }

    /// Goes on with the same section: new connections are as this plan says.
    pub fn lead(self: &Rc<Running>, plan: Plan) {
        let Plan { section, targets, listening, .. } = plan;
        let local = Target::local(&section).map(Arc::new);
        *self.targets.borrow_mut() = section
            .peers
            .iter()
            .map(|peer| match peer.name == section.local {
                true => local.clone(),
                false => targets.iter().find(|target| target.is_for(&section.name, &peer.name)).cloned(),
            })
            .collect();
        // Started anew, for they may answer TLS with other files; who waits in their queues is not concerned.
        *self.listening.borrow_mut() = listening.into_iter().map(|place| Listening::start(self, place)).collect();
    }

    /// Ends everything, and gives its state to the section that comes after it.
    fn stop(&self) -> Option<Section> {
        self.beat.take();
        let mut section = self.section.try_borrow_mut().ok()?;
        section.drain(now());
        section.close_all(now());
        self.links.borrow_mut().drain().for_each(|(_, task)| task.abort());
        self.count((0, 0));
        let settings = section.settings().clone();
        let empty = Section::new(settings, Vec::new(), Start::Fresh, now())?;
        Some(std::mem::replace(&mut *section, empty))
    }

    /// Ends everything.
    pub fn close(&self) {
        self.listening.borrow_mut().clear();
        self.stop();
    }

    /// Stops accepting at an address.
    pub fn close_address(&self, id: baton_proxy::ListenerId) {
        self.listening.borrow_mut().retain(|listening| !listening.is(id));
    }

    /// The process ends: what changed is sent, then the links are closed. If it `teaches`, the next process is taught all there is.
    pub fn end(self: &Rc<Running>, teaches: bool) {
        // It listens at the same address: what comes in from now on is its.
        self.listening.borrow_mut().clear();
        self.change(|section, now| section.end(teaches, now));
    }

    /// Whether nothing is left to do. Tables that go to the next process have what peers have not heard.
    pub fn is_ended(&self, teaches: bool) -> bool {
        let mut section = self.section.borrow_mut();
        let is_ended = section.is_ended();
        if is_ended && !teaches {
            section.give_back();
        }
        is_ended
    }

    /// Whether these are its tables.
    pub fn has_tables(&self, tables: &[TableSettings]) -> bool {
        self.section.borrow().has_tables(tables)
    }

    /// Its lines for operators.
    pub fn show(&self, with_texts: bool, place: usize) -> String {
        self.section.borrow().show(Shown { date: &self.date, with_texts, place }, now())
    }

    /// Something happens to the section, and what follows is done.
    fn change<T>(self: &Rc<Running>, happens: impl FnOnce(&mut Section, Now) -> T) -> T {
        let (value, effects) = {
            let mut section = self.section.borrow_mut();
            let value = happens(&mut section, now());
            self.count(section.sessions());
            (value, section.effects())
        };
        let is_quiet = effects.is_empty();
        for effect in effects {
            match effect {
                Effect::Close(link) => {
                    if let Some(task) = self.links.borrow_mut().remove(&link) {
                        task.abort();
                    }
                }
                Effect::Dial { link, peer } => self.dial(link, peer),
            }
        }
        if !is_quiet {
            self.look.notify_one();
        }
        self.wake.notify_waiters();
        value
    }

    /// Its peers with a connection, and with a session.
    fn count(&self, (active, connected): (usize, usize)) {
        let before = self.counted.replace((active, connected));
        if before != (active, connected) {
            // Differences wrap, and their sum does not.
            self.figures.active.fetch_add(active.wrapping_sub(before.0), Ordering::Relaxed);
            self.figures.connected.fetch_add(connected.wrapping_sub(before.1), Ordering::Relaxed);
        }
    }

    /// Time passes.
    async fn beat(self: Rc<Running>) {
        let mut look = LOOK_FIRST;
        loop {
            let is_changed = self.section.borrow_mut().drain(now());
            let is_due = self.section.borrow().due() <= now().as_millis();
            if is_changed || is_due {
                self.change(|section, now| section.tick(now));
            }
            look = if is_changed { LOOK_FIRST } else { (look * 2).min(LOOK_LATE) };
            let (due, shares) = {
                let section = self.section.borrow();
                (section.due(), section.shares_anything())
            };
            let until = Duration::from_millis(due.saturating_sub(now().as_millis()));
            let sleep = until.min(if shares { look } else { SLEEP_MAX });
            let _ = tokio::time::timeout(sleep, self.look.notified()).await;
        }
    }

    fn dial(self: &Rc<Running>, link: LinkId, peer: usize) {
        let target = self.targets.borrow().get(peer).cloned().flatten();
        let running = self.clone();
        let task = tokio::task::spawn_local(async move {
            if let Some(target) = target
                && let Ok(stream) = target.dial(link.0).await
            {
                running.change(|section, now| section.connected(link, now));
                running.serve(link, stream).await;
            }
            running.links.borrow_mut().remove(&link);
            running.change(|section, now| section.closed(link, now));
        });
        self.links.borrow_mut().insert(link, task.abort_handle());
    }

    /// Serves a connection that a peer opened, to its end.
    pub async fn accepted(self: &Rc<Running>, stream: Box<dyn Stream>) {
        let link = self.change(|section, now| section.accepted(now));
        let running = self.clone();
        let task = tokio::task::spawn_local(async move { running.serve(link, stream).await });
        self.links.borrow_mut().insert(link, task.abort_handle());
        // Its own task, which the section may end.
        let _ = task.await;
        self.links.borrow_mut().remove(&link);
        self.change(|section, now| section.closed(link, now));
    }

    /// Moves the bytes of a connection until it ends.
    async fn serve(self: &Rc<Running>, link: LinkId, stream: Box<dyn Stream>) {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut input = vec![0; INPUT_MAX];
        let (mut out, mut written, mut is_last) = (Vec::new(), 0, false);
        loop {
            if written == out.len() {
                out.clear();
                written = 0;
                if is_last {
                    break;
                }
                is_last = self.section.borrow_mut().produce(link, &mut out, now()) == Produced::Last;
                if is_last && out.is_empty() {
                    break;
                }
            }
            let count = tokio::select! {
                read = reader.read(&mut input) => match read {
                    Ok(count @ 1..) => count,
                    Ok(0) | Err(_) => return,
                },
                done = writer.write(&out[written..]), if written < out.len() => {
                    match done {
                        Ok(count @ 1..) => written += count,
                        Ok(0) | Err(_) => return,
                    }
                    if written == out.len() && writer.flush().await.is_err() {
                        return;
                    }
                    0
                }
                () = self.wake.notified(), if out.is_empty() => 0,
            };
            if count > 0 {
                self.change(|section, now| section.receive(link, &input[..count], now));
            }
        }
        // What was sent is not lost by a close over bytes that were not read.
        let taken = async {
            if writer.shutdown().await.is_ok() {
                while let Ok(1..) = reader.read(&mut input).await {}
            }
        };
        let _ = tokio::time::timeout(LAST_WITHIN, taken).await;
    }
}
