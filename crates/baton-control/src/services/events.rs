//! The stream of events (server-sent events) that keeps a statistics page live. It goes round all objects that the page shows, some at a
//! time, and sends those that are not what they were; then it waits for its next turn. All that is remembered of a page is a digest of each
//! object that it was sent.
//!
//! ```text
//! process, changes, certificates   what is true of the whole process
//! rows, gone                       objects that are new or have changed, and those that are no more
//! round                            all objects were sent
//! bye                              the stream ends: the page connects again
//! ```

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_model::{Object, Override, Overrides, Ruleset, StatsPage};
use serde_json::{Map, Value as Json, json};

use super::overview;
use super::statistics::Viewer;
use crate::control::Control;
use crate::operators::figures::ObjectKey;
use crate::overrides::OverrideRecord;
use crate::runtime::stat::columns::{COLUMNS, Column};
use crate::runtime::stat::{ObjectKind, Position, StatFilter, StatRow, Value};

/// Objects that are looked at in a turn, about.
const LOOKED_AT: usize = 256;
/// Text of one turn; the last object may go beyond it.
const TURN_BYTES: usize = 32 * 1024;
/// From one round to the next, unless `stats refresh` says otherwise.
const EVERY: Duration = Duration::from_secs(1);
/// Rounds from one look at all certificates to the next.
const CERTIFICATES_EVERY: u32 = 30;
/// The longest interval, so that a page that is gone is noticed.
const EVERY_MAX: Duration = Duration::from_secs(15);

/// The columns that a page shows.
const SHOWN: &[Column] = {
    use Column::*;
    &[
        Status,
        Mode,
        Scur,
        Smax,
        Slim,
        Stot,
        Bin,
        Bout,
        Dreq,
        Dresp,
        Ereq,
        Econ,
        Eresp,
        Wretr,
        Wredis,
        Weight,
        Act,
        Bck,
        Chkfail,
        Chkdown,
        Qcur,
        Qmax,
        Qlimit,
        Throttle,
        Tracked,
        Rate,
        RateLim,
        RateMax,
        ReqRate,
        ReqRateMax,
        ReqTot,
        CheckStatus,
        CheckCode,
        CheckDuration,
        CheckDesc,
        LastChk,
        Hrsp1xx,
        Hrsp2xx,
        Hrsp3xx,
        Hrsp4xx,
        Hrsp5xx,
        HrspOther,
        Qtime,
        Ctime,
        Rtime,
        Ttime,
        CliAbrt,
        SrvAbrt,
        Addr,
        Cookie,
        Algo,
    ]
};

/// Those of them that change by themselves as time goes by: they are sent with others.
const AGING: &[Column] = &[Column::Lastchg, Column::Downtime, Column::Lastsess];

/// Those that only numbers of TLS are in (`stats show-modules`).
const TLS: &[Column] = &[Column::SslSess, Column::SslReusedSess, Column::SslFailedHandshake];

/// Those that `stats show-legends` shows.
const LEGENDS: &[Column] = &[Column::Iid, Column::Sid];

/// A stream to one page.
#[derive(Debug)]
pub(super) struct Events {
    page: Arc<StatsPage>,
    proxy: Arc<str>,
    is_admin: bool,
    /// Whether it was asked who they are.
    is_known: bool,
    filter: StatFilter,
    at: Position,
    /// Digests of what was sent, and in which round each object was seen last.
    sent: HashMap<u64, Sent>,
    /// Digests of what is true of the whole process, as it was sent: itself, its changes, its certificates.
    whole: [u64; 3],
    round: u32,
    due: Instant,
    every: Duration,
    _live: Arc<()>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    digest: u64,
    round: u32,
}

/// What a turn comes to.
pub(super) enum Progress {
    /// It is not its turn.
    Waits,
    /// This is sent.
    Text(String),
    /// This is sent, and nothing else.
    Over(String),
}

impl Events {
    /// A stream that begins with everything. It is one of the `live` ones for as long as it is there.
    pub(super) fn new(
        control: &Control,
        viewer: &Viewer<'_>,
        proxy: Arc<str>,
        filter: StatFilter,
        live: Arc<()>,
    ) -> Events {
        let has_rules = || {
            let found = control.line.model().proxies.iter().find(|known| known.name == proxy);
            found.is_some_and(|proxy| !proxy.rules(Ruleset::StatsRequest).is_empty())
        };
        let is_known = viewer.is_admin || !viewer.page.users.is_empty() || has_rules();
        Events {
            page: viewer.page.clone(),
            is_admin: viewer.is_admin,
            is_known,
            filter,
            at: Position::default(),
            sent: HashMap::new(),
            whole: [0; 3],
            round: 0,
            due: Instant::now(),
            every: viewer.page.refresh.unwrap_or(EVERY).clamp(EVERY, EVERY_MAX),
            proxy,
            _live: live,
        }
    }

    /// When its next turn is.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Whether it ends: the process does, or the page is not what it was, and who may see it may be another question now.
    pub(super) fn ends(&self, control: &Control) -> bool {
        let model = control.line.model();
        let is_this = |page: &Arc<StatsPage>| *page == self.page;
        control.is_stopping()
            || !model.proxies.iter().any(|proxy| proxy.name == self.proxy && proxy.stats.as_ref().is_some_and(is_this))
    }

    /// A turn, if it is time for one.
    pub(super) fn step(&mut self, control: &Control, now: Instant) -> Progress {
        if self.ends(control) {
            return Progress::Over("event: bye\ndata: {}\n\n".into());
        }
        if now < self.due {
            return Progress::Waits;
        }
        let mut out = String::new();
        if self.round == 0 {
            self.round = 1;
            out.push_str("retry: 1500\n\n");
        }
        if self.at.is_start() {
            self.look_at_process(control, &mut out);
        }
        if self.look(control, &mut out) {
            self.end_round(now, &mut out);
        }
        Progress::Text(out)
    }

    fn look_at_process(&mut self, control: &Control, out: &mut String) {
        let process = overview::process(control, &self.page, self.is_admin);
        self.tell(0, ("process", &process), out);
        if !self.page.scopes.is_empty() {
            return;
        }
        self.tell(1, ("changes", &overview::changes(control, self.is_known)), out);
        if self.round % CERTIFICATES_EVERY == 1 {
            self.tell(2, ("certificates", &overview::certificates(control)), out);
        }
    }

    /// Sends something about the whole process, if it is not what was sent.
    fn tell(&mut self, at: usize, (name, data): (&str, &Json), out: &mut String) {
        let digest = digest(&data.to_string());
        if std::mem::replace(&mut self.whole[at], digest) != digest {
            event(out, name, data);
        }
    }

    /// Looks at some objects; true when they were the last ones.
    fn look(&mut self, control: &Control, out: &mut String) -> bool {
        let overrides = control.line.registry().overrides();
        let (mut rows, mut changed, mut bytes, mut count) = (Vec::new(), Vec::new(), 0, 0);
        let is_over = loop {
            if !self.at.next(control, &self.filter, &mut rows) {
                break true;
            }
            for row in rows.drain(..) {
                count += 1;
                if let Some(object) = self.look_at(control, &overrides, &row) {
                    let text = object.to_string();
                    bytes += text.len();
                    changed.push(text);
                }
            }
            count += 1;
            if count >= LOOKED_AT || bytes >= TURN_BYTES {
                break false;
            }
        };
        if !changed.is_empty() {
            let _ = write!(out, "event: rows\ndata: [{}]\n\n", changed.join(","));
        }
        is_over
    }

    /// An object, if it is not as it was when it was sent last.
    fn look_at(&mut self, control: &Control, overrides: &Overrides, row: &StatRow) -> Option<Json> {
        let id = digest(&(row.kind as u32, text(row, Column::Pxname), text(row, Column::Svname)));
        let mut values = Map::new();
        put(&mut values, row, SHOWN);
        put(&mut values, row, if self.page.shows_modules { TLS } else { &[] });
        put(&mut values, row, if self.page.shows_legends { LEGENDS } else { &[] });
        let overridden = self.overridden(overrides, row);
        let digest = digest(&(Json::Object(values.clone()).to_string(), Json::Array(overridden.clone()).to_string()));
        let sent = self.sent.insert(id, Sent { digest, round: self.round });
        if sent.is_some_and(|sent| sent.digest == digest) {
            return None;
        }
        put(&mut values, row, AGING);
        let mut object = json!({
            "id": format!("{id:x}"),
            "type": row.kind as u32,
            "proxy": text(row, Column::Pxname),
            "name": text(row, Column::Svname),
            "values": values,
        });
        if !overridden.is_empty() {
            object["overrides"] = Json::Array(overridden);
        }
        if sent.is_none() {
            object["plot"] = plot(control, row);
            if matches!(row.kind, ObjectKind::Frontend | ObjectKind::Backend) {
                let proxies = &control.line.model().proxies;
                let known = proxies.iter().find(|proxy| *proxy.name == *text(row, Column::Pxname));
                object["description"] = known.and_then(|proxy| proxy.description.clone()).into();
            }
        }
        Some(object)
    }

    /// What operators set of a server.
    fn overridden(&self, overrides: &Overrides, row: &StatRow) -> Vec<Json> {
        if row.kind != ObjectKind::Server || overrides.is_empty() {
            return Vec::new();
        }
        let object = Object::server(&text(row, Column::Pxname).into(), &text(row, Column::Svname).into());
        let set = overrides.of(&object);
        let one = |set: &Override| {
            let record = OverrideRecord::of(&object, set);
            let by = if self.is_known { record.by().to_string() } else { "an operator".into() };
            json!({ "field": record.field, "value": record.value, "file": record.file, "by": by, "at": record.at_s })
        };
        set.map(one).collect()
    }

    fn end_round(&mut self, now: Instant, out: &mut String) {
        let round = self.round;
        let gone: Vec<String> =
            self.sent.iter().filter(|(_, sent)| sent.round != round).map(|(id, _)| format!("{id:x}")).collect();
        if !gone.is_empty() {
            self.sent.retain(|_, sent| sent.round == round);
            event(out, "gone", &json!(gone));
        }
        if round == 1 {
            event(out, "round", &json!({}));
        }
        if out.is_empty() {
            // Whoever is gone is noticed by it.
            out.push_str(":\n\n");
        }
        self.round = self.round.wrapping_add(1).max(1);
        self.at = Position::default();
        self.due = now + self.every;
    }
}

fn event(out: &mut String, name: &str, data: &Json) {
    // JSON has no line breaks of its own. Writing to a string cannot fail.
    let _ = write!(out, "event: {name}\ndata: {data}\n\n");
}

fn plot(control: &Control, row: &StatRow) -> Json {
    let (proxy, name) = (text(row, Column::Pxname).into(), text(row, Column::Svname).into());
    let key = match row.kind {
        ObjectKind::Frontend => ObjectKey::Frontend(proxy),
        ObjectKind::Backend => ObjectKey::Backend(proxy),
        ObjectKind::Server => ObjectKey::Server(proxy, name),
        ObjectKind::Listener => return Json::Null,
    };
    let points = control.line.runtime().plots.of(&key);
    points.map(|point| json!([point.rate, point.time_ms])).collect()
}

fn put(values: &mut Map<String, Json>, row: &StatRow, columns: &[Column]) {
    for column in columns {
        if let Some(value) = number_or_text(row.value(*column)) {
            values.insert(COLUMNS[*column as usize].name.into(), value);
        }
    }
}

fn text(row: &StatRow, column: Column) -> String {
    match row.value(column) {
        Value::Text(text) => text.clone(),
        other => other.to_string(),
    }
}

fn number_or_text(value: &Value) -> Option<Json> {
    Some(match value {
        Value::None => return None,
        Value::U32(number) => (*number).into(),
        Value::U64(number) => (*number).into(),
        Value::S32(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::Text(text) => text.clone().into(),
    })
}

/// A digest within this process.
pub(super) fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
