//! The values of a scrape, read from live state some objects at a time: between two calls the control thread does other things.
//!
//! The text format wants all series of a metric together, so it goes over all objects once for each metric. Reading live state that often
//! would cost seconds with many servers; so the values are read once, and kept as 8 bytes for each metric of each object until the
//! response is written. Objects are those of one generation, whatever is reloaded meanwhile.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use baton_proxy::balance::ServerState;
use baton_proxy::{BackendPlan, Generation, ListenerPlan};

use super::own::OwnValues;
use super::parts::Part;
use super::query::ScrapeQuery;
use super::rows::{CHECKS, Metric, MetricForm, check_of, metrics_of, state_of, states_of};
use super::tables::TableValues;
use super::text;
use crate::control::Control;
use crate::runtime::field::{Field, Value};
use crate::runtime::info;
use crate::runtime::stat::columns::Column;
use crate::runtime::stat::{ObjectKind, RowReader, StatRow};

/// Objects that are read at a time: a fraction of a millisecond.
const OBJECTS_PER_TURN: usize = 64;

/// A value of a metric. A number, which for states is the state's position, or one of the two below.
#[derive(Clone, Copy, Debug)]
pub struct Cell(f64);

impl Cell {
    /// There is a series, and no number.
    const UNKNOWN: Cell = Cell(f64::NAN);
    /// There is no series. No value is infinite.
    const OMITTED: Cell = Cell(f64::INFINITY);

    /// The number, which may not be one; `None` when there is no series.
    pub fn shown(self) -> Option<f64> {
        (self.0 != f64::INFINITY).then_some(self.0)
    }
}

/// The values of the objects of a kind.
#[derive(Debug)]
pub struct Objects {
    pub kind: ObjectKind,
    pub metrics: Vec<&'static Metric>,
    /// The labels of each, as they are written.
    pub labels: Vec<Box<str>>,
    /// For each object the values of all metrics.
    cells: Vec<Cell>,
    /// Of backends: their servers by states and checks.
    pub servers: Vec<ServerCensus>,
}

impl Objects {
    fn new(kind: ObjectKind) -> Objects {
        Objects {
            kind,
            metrics: metrics_of(kind).collect(),
            labels: Vec::new(),
            cells: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// Takes an object's values.
    pub fn push(&mut self, row: &StatRow) {
        self.labels.push(labels(row).into());
        let is_http = *row.value(Column::Mode) == Value::Text("http".into());
        self.cells.extend(self.metrics.iter().map(|metric| cell(self.kind, metric, row, is_http)));
    }

    /// The value of a metric, by the positions of object and metric.
    pub fn cell(&self, object: usize, metric: usize) -> Cell {
        self.cells[object * self.metrics.len() + metric]
    }
}

/// A backend's servers by what they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerCensus {
    /// For each state of a server.
    pub states: [u32; 5],
    /// For each result of a check.
    pub checks: [u32; CHECKS.len()],
}

/// A scrape whose values are being read.
#[derive(Debug)]
pub struct Scrape {
    query: ScrapeQuery,
    generation: Option<Arc<Generation>>,
    /// The sockets of each frontend, where the generation has them.
    sockets: HashMap<Arc<str>, Range<usize>>,
    /// The position of the proxy that is next in the model.
    proxy: usize,
    /// A backend that is being read.
    backend: Option<BackendWalk>,
    pub(super) process: Vec<(&'static Field, Value)>,
    /// By the numbers of their kinds.
    pub(super) objects: [Objects; 4],
    pub(super) tables: Vec<TableValues>,
    pub(super) own: Option<OwnValues>,
    /// Counts the scrapes in progress.
    _held: Arc<()>,
}

/// How far a backend was read.
#[derive(Debug)]
struct BackendWalk {
    plan: Arc<BackendPlan>,
    servers: Vec<Arc<ServerState>>,
    next: usize,
    census: ServerCensus,
}

impl Scrape {
    /// Begins a scrape: what is of the process is read.
    pub fn new(control: &Control, query: ScrapeQuery, now: Instant) -> Scrape {
        let process = if query.wants(Part::Process) { info::values(control) } else { Vec::new() };
        let own = query.wants(Part::Own).then(|| OwnValues::read(control, now));
        let generation = control.line.generation().cloned();
        let wants_sockets = query.wants(Part::Objects(ObjectKind::Listener));
        let sockets = generation.as_ref().filter(|_| wants_sockets).map(|generation| sockets(&generation.listeners));
        use ObjectKind::{Backend, Frontend, Listener, Server};
        Scrape {
            generation,
            sockets: sockets.unwrap_or_default(),
            proxy: 0,
            backend: None,
            process,
            objects: [Frontend, Backend, Server, Listener].map(Objects::new),
            tables: if query.wants(Part::Tables) { TableValues::read(control) } else { Vec::new() },
            own,
            query,
            _held: control.scrapes.clone(),
        }
    }

    /// A scrape of no process.
    #[cfg(test)]
    pub fn of_nothing(query: ScrapeQuery) -> Scrape {
        use ObjectKind::{Backend, Frontend, Listener, Server};
        Scrape {
            query,
            generation: None,
            sockets: HashMap::new(),
            proxy: 0,
            backend: None,
            process: Vec::new(),
            objects: [Frontend, Backend, Server, Listener].map(Objects::new),
            tables: Vec::new(),
            own: None,
            _held: Arc::default(),
        }
    }

    /// What is asked for.
    pub(super) fn wants(&self, part: Part) -> bool {
        self.query.wants(part)
    }

    fn wants_servers(&self) -> bool {
        self.wants(Part::Objects(ObjectKind::Server)) || self.wants(Part::Objects(ObjectKind::Backend))
    }

    /// Reads some objects; whether all were read.
    pub fn read(&mut self, control: &Control, now: Instant) -> bool {
        let Some(generation) = self.generation.clone() else { return true };
        let reader = RowReader::new(control, &generation, now);
        let mut left = OBJECTS_PER_TURN;
        while left > 0 {
            if let Some(walk) = self.backend.take() {
                left = self.read_servers(&reader, walk, left);
                continue;
            }
            let Some(proxy) = generation.model.proxies.get(self.proxy) else { return true };
            self.proxy += 1;
            left -= 1;
            if proxy.disabled {
                continue;
            }
            if proxy.role.is_frontend() {
                left = left.saturating_sub(self.read_frontend(&reader, &generation, &proxy.name));
            }
            if proxy.role.is_backend() && self.wants_servers() {
                self.backend = generation.backends.get(&proxy.name).map(|plan| BackendWalk {
                    plan: plan.clone(),
                    servers: plan.state.servers(),
                    next: 0,
                    census: ServerCensus::default(),
                });
            }
        }
        false
    }

    /// A frontend and its sockets; how many there were.
    fn read_frontend(&mut self, reader: &RowReader<'_>, generation: &Generation, name: &str) -> usize {
        let Some(plan) = generation.frontend(name) else { return 0 };
        let [frontends, _, _, listeners] = &mut self.objects;
        if self.query.wants(Part::Objects(ObjectKind::Frontend)) {
            frontends.push(&reader.frontend(plan));
        }
        if !plan.proxy.tcp.socket_stats {
            return 0;
        }
        let Some(sockets) = self.sockets.get(name) else { return 0 };
        let sockets = &generation.listeners[sockets.clone()];
        sockets.iter().for_each(|socket| listeners.push(&reader.listener(socket)));
        sockets.len()
    }

    /// Goes on with a backend, for `left` servers at most; how many are left for others.
    fn read_servers(&mut self, reader: &RowReader<'_>, mut walk: BackendWalk, left: usize) -> usize {
        let some = walk.servers[walk.next..].iter().take(left);
        let count = some.len();
        let [_, backends, servers, _] = &mut self.objects;
        for state in some {
            let mut row = reader.server(&walk.plan, state);
            let report = state.check_report();
            if state.admin().in_maintenance() && !report.status.is_empty() && state.config().check.enabled {
                // As from HAProxy: the table has nothing of checks then, and the metrics have this.
                let ms = u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX);
                row.set(Column::CheckDuration, Value::U64(ms));
            }
            let text = |column| match row.value(column) {
                Value::Text(text) => text.as_str(),
                _ => "",
            };
            if let Some(at) = state_of(ObjectKind::Server, text(Column::Status)) {
                walk.census.states[at] += 1;
            }
            // The last result counts in maintenance, too.
            let result = match report.status {
                "" => text(Column::CheckStatus),
                result => result,
            };
            if let Some(at) = check_of(result) {
                walk.census.checks[at] += 1;
            }
            let is_left_out = self.query.no_maintenance && state.admin().in_maintenance();
            if self.query.wants(Part::Objects(ObjectKind::Server)) && !is_left_out {
                servers.push(&row);
            }
        }
        walk.next += count;
        if walk.next < walk.servers.len() {
            self.backend = Some(walk);
            return left - count;
        }
        if self.query.wants(Part::Objects(ObjectKind::Backend)) {
            backends.push(&reader.backend(&walk.plan, &walk.servers));
            backends.servers.push(walk.census);
        }
        (left - count).saturating_sub(1)
    }
}

/// The sockets of each frontend: those of one stand one after the other.
fn sockets(listeners: &[Arc<ListenerPlan>]) -> HashMap<Arc<str>, Range<usize>> {
    let mut at = 0;
    let groups = listeners.chunk_by(|one, next| Arc::ptr_eq(&one.frontend, &next.frontend));
    let range = |group: &[Arc<ListenerPlan>]| {
        at += group.len();
        (group[0].frontend.proxy.name.clone(), at - group.len()..at)
    };
    groups.map(range).collect()
}

/// The labels of an object.
fn labels(row: &StatRow) -> String {
    let mut out = String::new();
    let name = match row.kind {
        ObjectKind::Frontend | ObjectKind::Backend => None,
        ObjectKind::Server => Some("server"),
        ObjectKind::Listener => Some("listener"),
    };
    text::label(&mut out, "proxy", row.value(Column::Pxname));
    if let Some(name) = name {
        out.push(',');
        text::label(&mut out, name, row.value(Column::Svname));
    }
    out
}

/// What a metric shows of an object.
fn cell(kind: ObjectKind, metric: &Metric, row: &StatRow, is_http: bool) -> Cell {
    if metric.is_http && !is_http {
        return Cell::OMITTED;
    }
    let none = if metric.is_omitted { Cell::OMITTED } else { Cell::UNKNOWN };
    let value = row.value(metric.column);
    match metric.form {
        MetricForm::Number | MetricForm::Class(_) => value.number().map_or(none, Cell),
        MetricForm::Seconds => value.number().map_or(none, |ms| Cell(ms / 1000.0)),
        MetricForm::CheckCode => match (value.number(), row.value(Column::CheckStatus)) {
            (Some(code), _) => Cell(code),
            (None, Value::Text(_)) => Cell(0.0),
            (None, _) => none,
        },
        MetricForm::State => match value {
            // A state that has no label shows as none of those that have one.
            Value::Text(status) => Cell(state_of(kind, status).unwrap_or(states_of(kind).len()) as f64),
            _ => none,
        },
        MetricForm::Check => match value {
            Value::Text(status) => Cell(check_of(status).unwrap_or(CHECKS.len()) as f64),
            _ => none,
        },
        // Counted while servers are read; a backend without servers has none.
        MetricForm::Servers | MetricForm::Checks => Cell::OMITTED,
    }
}
