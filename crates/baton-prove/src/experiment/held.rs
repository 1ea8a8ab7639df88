//! What is open while the events happen, besides the load: kept connections, WebSockets and TCP tunnels; and what is looked at afterwards.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::end::end;
use super::place::RunEnvironment;
use super::processes::Processes;
use super::{Held, Server};
use crate::load::{Load, LoadHandle, LoadOptions};
use crate::proof::{HeldResult, HeldSessions, ProcessesSeen};
use crate::report::Report;
use crate::sessions::{SessionKind, SessionOptions, Sessions, SessionsHandle};

/// How long opening all sessions may take.
const OPEN_MAX: Duration = Duration::from_secs(10);
/// Time from one message of a session to its next.
const MESSAGE_EVERY: Duration = Duration::from_millis(500);
/// How long a command that looks at the server may take.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// How long a change may take to be in effect.
const EFFECT_MAX: Duration = Duration::from_secs(60);
/// Time between two looks at whether it is.
const EFFECT_EVERY: Duration = Duration::from_millis(10);

/// In how many groups the sessions are opened: the first before the load, the others while it runs, so that every process of the server
/// gets some.
const GROUPS: usize = 5;

/// What is open.
pub(crate) struct OpenConnections {
    kept: Option<LoadHandle>,
    websockets: SessionGroups,
    tunnels: SessionGroups,
    before: ProcessesSeen,
}

/// Sessions of one kind.
struct SessionGroups {
    /// How many there will be.
    count: usize,
    options: SessionOptions,
    /// Groups that were opened, those of no session included.
    groups: usize,
    open: Vec<SessionsHandle>,
}

impl OpenConnections {
    /// Opens everything that an experiment holds with this server; `kept` is its second load.
    ///
    /// # Errors
    /// A sentence, when a load or a session cannot be started, or not all sessions are open in time: what was never open cannot be cut.
    pub(crate) async fn open(
        held: &Held,
        server: &Server,
        place: &RunEnvironment,
        processes: &Processes,
        kept: Option<LoadOptions>,
    ) -> Result<OpenConnections, String> {
        let path = "/ws".to_owned();
        let tunnels = if server.tunnels { held.tunnels } else { 0 };
        let mut open = OpenConnections {
            websockets: SessionGroups::new(held.websockets, place.web(), SessionKind::WebSocket { path }),
            tunnels: SessionGroups::new(tunnels, place.second(), SessionKind::Tunnel),
            before: ProcessesSeen::of(processes.alive().iter().map(|left| left.pid)),
            kept: None,
        };
        for (groups, what) in [(&mut open.websockets, "WebSocket"), (&mut open.tunnels, "TCP connection")] {
            groups.open_next().map_err(|error| format!("{what}s: {error}"))?;
            let Some(sessions) = groups.open.first() else { continue };
            let _ = timeout(OPEN_MAX, sessions.ready()).await;
            if sessions.lost() > 0 || sessions.alive() == 0 {
                return Err(format!("{} does not forward: not every {what} could be opened", server.name));
            }
        }
        open.kept = kept.map(Load::start).transpose().map_err(|error| format!("the second load: {error}"))?;
        Ok(open)
    }

    /// Opens the other groups, one after each of these times. Returns only to say why that is not possible; sessions that the server does not
    /// accept count as cut instead.
    pub(crate) async fn open_more(&mut self, every: Duration) -> String {
        for _ in 1..GROUPS {
            sleep(every).await;
            let opened = self.websockets.open_next().and_then(|()| self.tunnels.open_next());
            if let Err(error) = opened {
                return format!("no more sessions can be opened: {error}");
            }
        }
        std::future::pending().await
    }

    /// Ends the second load, waits with the sessions open, and looks at what is left of what there was.
    pub(crate) async fn conclude(
        self,
        wait: Duration,
        server: &Server,
        place: &RunEnvironment,
        processes: &mut Processes,
        in_effect: Option<Duration>,
    ) -> HeldResult {
        let kept = match self.kept {
            Some(kept) => Some(Report::new(&end(kept, || ()).await)),
            None => None,
        };
        let mut keeps = BTreeMap::new();
        for (name, command) in &server.keeps {
            let ran = processes.run(&place.fill(command), LOOK_MAX).await;
            keeps.insert(name.clone(), ran.fault.is_none());
        }
        sleep(wait).await;
        processes.reap();
        let after = ProcessesSeen::of(processes.alive().iter().map(|left| left.pid));
        HeldResult {
            kept,
            websockets: self.websockets.end().await,
            tunnels: self.tunnels.end().await,
            keeps,
            in_effect,
            certificates: None,
            before: self.before,
            after,
            waited: wait,
        }
    }
}

/// Makes one more change, and returns how long it took until new connections had it; `None` when they have not within a minute, or when
/// there is no command that tells.
pub(crate) async fn until_in_effect(
    number: usize,
    server: &Server,
    place: &RunEnvironment,
    processes: &mut Processes,
) -> Option<Duration> {
    let (event, in_effect) = (server.event.as_ref()?, server.in_effect.as_ref()?);
    let begin = Instant::now();
    processes.run(&place.fill_event(event, number), EFFECT_MAX).await.fault.is_none().then_some(())?;
    let look = place.fill_event(in_effect, number);
    while begin.elapsed() < EFFECT_MAX {
        if processes.run(&look, LOOK_MAX).await.fault.is_none() {
            return Some(begin.elapsed());
        }
        sleep(EFFECT_EVERY).await;
    }
    None
}

impl SessionGroups {
    fn new(count: usize, address: SocketAddr, kind: SessionKind) -> SessionGroups {
        let options = SessionOptions { interval: Some(MESSAGE_EVERY), ..SessionOptions::new(address, kind) };
        SessionGroups { count, options, groups: 0, open: Vec::new() }
    }

    /// Opens the next group; the last one has what is left.
    fn open_next(&mut self) -> io::Result<()> {
        let until = |groups: usize| (groups * self.count).div_ceil(GROUPS);
        let count = until(self.groups + 1) - until(self.groups);
        self.groups += 1;
        if count > 0 {
            self.open.push(Sessions::start(SessionOptions { count, ..self.options.clone() })?);
        }
        Ok(())
    }

    /// Lets each session exchange a last message, and closes it; `None` when there were none.
    async fn end(self) -> Option<HeldSessions> {
        let mut held: Option<HeldSessions> = None;
        for group in self.open {
            let result = group.stop().await;
            let held = held.get_or_insert_default();
            held.opened += result.sessions;
            held.cut += result.losses.len() as u64;
        }
        held
    }
}
