//! Peers: other processes with which stick tables are shared (`peers` sections).
//!
//! What is spoken is `baton-peers`'; here are its connections. They have a thread of their own, so that a long lesson delays neither requests
//! nor the change path, which passes it what a configuration says ([`Peers::apply`]). The thread accepts at the addresses that the change path
//! opened, dials, and moves bytes. Nothing of it begins before it is decided that this process serves ([`Peers::begin`]).

mod keeper;
mod listening;
mod running;
mod target;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use baton_model::{Model, PeersSection};
use baton_peers::{Start, TableSettings};
use baton_proxy::{ListenerId, Refused};
use baton_rules::Files;
use baton_tables::Tables;
use baton_tls::{Acceptor, Connectors};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::listeners::OpenPeers;

use self::target::Target;

/// The sections of the configuration in use.
#[derive(Debug, Default)]
pub struct Peers {
    orders: Option<UnboundedSender<Order>>,
    /// What is in use, and not known to the thread before it begins.
    waiting: Option<Vec<Plan>>,
    /// The targets of the configuration in use, for those that stay.
    targets: Vec<Arc<Target>>,
    has_begun: bool,
    figures: Arc<Figures>,
}

/// What the thread counts.
#[derive(Debug, Default)]
struct Figures {
    /// Sections that have not ended yet, of a process that stops.
    left: AtomicUsize,
    /// Peers with a connection.
    active: AtomicUsize,
    /// Peers with a session.
    connected: AtomicUsize,
}

/// How peers are reached by a configuration that may come into use.
#[derive(Debug, Default)]
pub struct PreparedPeers {
    targets: Vec<Arc<Target>>,
}

/// A section, with all that its links need.
#[derive(Debug)]
struct Plan {
    section: Arc<PeersSection>,
    tables: Vec<TableSettings>,
    /// Those of other peers.
    targets: Vec<Arc<Target>>,
    listening: Vec<Place>,
}

/// Where a section listens.
#[derive(Debug)]
struct Place {
    open: OpenPeers,
    acceptor: Option<Arc<Acceptor>>,
}

/// What the thread is told.
#[derive(Debug)]
enum Order {
    /// These are all sections from now on; new ones begin like this.
    Apply(Vec<Plan>, Start),
    /// An address is closed.
    Close(ListenerId),
    /// The process ends. Another one may take over, and is taught then if it does not have the tables themselves.
    End { teaches: bool },
    /// What operators want to see.
    Show { section: String, with_texts: bool, reply: oneshot::Sender<Option<String>> },
}

impl Peers {
    /// Reads and checks what links need, beside what is in use.
    ///
    /// # Errors
    /// Every reason against it.
    pub fn prepare(
        &self,
        model: &Model,
        connectors: Connectors<'_>,
        files: &dyn Files,
    ) -> Result<PreparedPeers, Vec<Refused>> {
        let (mut targets, mut refused) = (Vec::new(), Vec::new());
        for section in model.peers.iter().filter(|section| !section.disabled) {
            for server in &section.proxy.servers {
                let before = self.targets.iter().find(|target| target.is_for(&section.name, &server.name));
                match Target::prepare(section, server, connectors, files, before) {
                    Ok(target) => targets.push(target),
                    Err(reason) => refused.push(Refused {
                        object: format!("peers {}: peer {}", section.name, server.name),
                        reason,
                        source: server.line.clone(),
                    }),
                }
            }
        }
        if refused.is_empty() { Ok(PreparedPeers { targets }) } else { Err(refused) }
    }

    /// Uses a configuration, whose tables are in use already. `acceptors` gives what answers TLS at an address.
    pub fn apply(
        &mut self,
        model: &Model,
        prepared: PreparedPeers,
        open: Vec<OpenPeers>,
        acceptor: impl Fn(&OpenPeers) -> Option<Arc<Acceptor>>,
        tables: &Tables,
        is_continued: impl Fn(&str) -> bool,
    ) {
        let mut places: Vec<Place> = open.into_iter().map(|open| Place { acceptor: acceptor(&open), open }).collect();
        let enabled = model.peers.iter().filter(|section| !section.disabled);
        let plans = enabled.map(|section| {
            let (listening, others) = places.drain(..).partition(|place| place.open.section == section.name);
            places = others;
            let shared = model.tables().filter(|table| table.peers.as_ref() == Some(&section.name));
            let settings = shared.filter_map(|table| {
                let write_to = table.write_to.as_ref().and_then(|name| tables.get(name));
                let is_continued = is_continued(&table.name);
                Some(TableSettings { table: tables.get(&table.name)?, write_to, is_continued })
            });
            Plan {
                section: section.clone(),
                tables: settings.collect(),
                targets: prepared.targets.iter().filter(|target| target.section == section.name).cloned().collect(),
                listening,
            }
        });
        let plans: Vec<Plan> = plans.collect();
        self.targets = prepared.targets;
        match self.has_begun {
            true => self.order_plans(plans, Start::Fresh),
            false => self.waiting = Some(plans),
        }
    }

    /// It is decided that this process serves: links begin.
    pub fn begin(&mut self, start: Start) {
        self.has_begun = true;
        let plans = self.waiting.take().unwrap_or_default();
        self.order_plans(plans, start);
    }

    /// An address is closed.
    pub fn close(&self, id: ListenerId) {
        self.order(Order::Close(id));
    }

    /// The process ends, and `teaches` who takes over without its tables. See [`Peers::left`].
    pub fn end(&mut self, teaches: bool) {
        self.order(Order::End { teaches });
    }

    /// How many sections have something to do still, of a process that ends.
    pub fn left(&self) -> usize {
        self.figures.left.load(Ordering::Acquire)
    }

    /// Peers with a connection, and those with a session.
    pub fn sessions(&self) -> (usize, usize) {
        (self.figures.active.load(Ordering::Relaxed), self.figures.connected.load(Ordering::Relaxed))
    }

    /// The lines of `show peers`; `None` comes back where there is no such section. An empty name means all.
    pub fn show(&self, section: &str, with_texts: bool) -> oneshot::Receiver<Option<String>> {
        let (reply, shown) = oneshot::channel();
        let is_sent = self.orders.as_ref().map(|orders| {
            orders.send(Order::Show { section: section.to_owned(), with_texts, reply }).map_err(|error| error.0)
        });
        match is_sent {
            Some(Ok(())) => {}
            Some(Err(Order::Show { reply, .. })) => drop(reply.send(section.is_empty().then(String::new))),
            Some(Err(_)) => {}
            None => return answered(section.is_empty().then(String::new)),
        }
        shown
    }

    fn order_plans(&mut self, plans: Vec<Plan>, start: Start) {
        if self.orders.is_none() && !plans.is_empty() {
            let (orders, received) = unbounded_channel();
            let figures = self.figures.clone();
            self.orders = keeper::start(received, figures).map(|()| orders).ok();
        }
        self.order(Order::Apply(plans, start));
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            if matches!(order, Order::End { .. }) {
                // Until the thread knows better.
                self.figures.left.fetch_max(1, Ordering::AcqRel);
            }
            // A thread that has ended has nothing to do.
            if orders.send(order).is_err() {
                self.figures.left.store(0, Ordering::Release);
            }
        }
    }
}

fn answered(text: Option<String>) -> oneshot::Receiver<Option<String>> {
    let (reply, shown) = oneshot::channel();
    let _ = reply.send(text);
    shown
}
