//! `show stat`: a line for each frontend, listening socket, server and backend (management guide, 9.1 and 9.2).

mod backend;
pub mod columns;
mod frontend;
mod resolvers;
mod table;

use std::sync::Arc;
use std::time::Instant;

use baton_model::{AccessLevel, Model, Proxy};
use baton_proxy::balance::ServerState;
use baton_proxy::{BackendPlan, Counter, CounterBlock, FrontendPlan, Generation, ListenerPlan};

use self::columns::{COLUMNS, Column, FIXED};
use super::field::{self, Form, Format};
use super::{Begun, Pieces};
use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;

pub(crate) use self::table::{Position, StatTable};
pub(crate) use super::field::Value;

/// The kinds of objects: their number in the column `type`, and their bit in the filter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ObjectKind {
    Frontend,
    Backend,
    Server,
    Listener,
}

impl ObjectKind {
    fn bit(self) -> i64 {
        1 << self as i64
    }

    /// Letter and word of the typed forms.
    fn words(self) -> (char, &'static str) {
        match self {
            ObjectKind::Frontend => ('F', "Frontend"),
            ObjectKind::Backend => ('B', "Backend"),
            ObjectKind::Server => ('S', "Server"),
            ObjectKind::Listener => ('L', "Listener"),
        }
    }
}

/// One object's values.
pub(crate) struct StatRow {
    pub(crate) kind: ObjectKind,
    proxy: u32,
    id: u32,
    values: Vec<Value>,
}

impl StatRow {
    pub(crate) fn new(kind: ObjectKind, proxy: &Proxy, name: &str, id: u32) -> StatRow {
        let mut line = StatRow { kind, proxy: proxy.id, id, values: vec![Value::None; COLUMNS.len()] };
        line.set(Column::Pxname, Value::text(&*proxy.name));
        line.set(Column::Svname, Value::text(name));
        line.set(Column::Pid, Value::U32(1));
        line.set(Column::Iid, Value::U32(proxy.id));
        line.set(Column::Sid, Value::U32(id));
        line.set(Column::Type, Value::U32(kind as u32));
        line.set(Column::Mode, Value::text(proxy.mode.word()));
        // What cannot happen here, or is not kept, is zero as in a HAProxy that does not use it.
        use Column::{Eint, SslFailedHandshake, SslReusedSess, SslSess};
        line.zero(&[Eint, SslSess, SslReusedSess, SslFailedHandshake]);
        line
    }

    /// The value of a column.
    pub(crate) fn value(&self, column: Column) -> &Value {
        &self.values[column as usize]
    }

    pub(crate) fn set(&mut self, column: Column, value: Value) {
        self.values[column as usize] = value;
    }

    /// Counters that are zero.
    fn zero(&mut self, columns: &[Column]) {
        for column in columns {
            let is_gauge = COLUMNS[*column as usize].tag != "MCP";
            let is_wide = *column as usize >= FIXED;
            self.set(*column, if is_gauge && !is_wide { Value::U32(0) } else { Value::U64(0) });
        }
    }

    fn count(&mut self, counters: &CounterBlock, columns: &[(Column, Counter)]) {
        for (column, counter) in columns {
            self.set(*column, Value::U64(counters.total(*counter)));
        }
    }

    /// What frontends and backends do not use here.
    fn zero_proxy(&mut self, is_http: bool) {
        use Column::{CacheHits, CacheLookups, CompByp, CompIn, CompOut, CompRsp};
        self.zero(&[CompIn, CompOut, CompByp, CompRsp]);
        if is_http {
            self.zero(&[CacheLookups, CacheHits]);
        }
        for at in FIXED..COLUMNS.len() {
            self.values[at] = Value::U64(0);
        }
    }
}

/// Counters of all objects.
const TRAFFIC: &[(Column, Counter)] = &[(Column::Bin, Counter::BytesIn), (Column::Bout, Counter::BytesOut)];

/// Counters of responses, in `mode http`.
const RESPONSES: &[(Column, Counter)] = &[
    (Column::Hrsp1xx, Counter::Responses1xx),
    (Column::Hrsp2xx, Counter::Responses2xx),
    (Column::Hrsp3xx, Counter::Responses3xx),
    (Column::Hrsp4xx, Counter::Responses4xx),
    (Column::Hrsp5xx, Counter::Responses5xx),
    (Column::HrspOther, Counter::ResponsesOther),
];

/// Makes the rows of single objects, for another form of output.
pub(crate) struct RowReader<'a> {
    control: &'a Control,
    generation: &'a Generation,
    filter: StatFilter,
    now: Instant,
}

impl<'a> RowReader<'a> {
    /// Of objects of a generation.
    pub(crate) fn new(control: &'a Control, generation: &'a Generation, now: Instant) -> RowReader<'a> {
        RowReader { control, generation, filter: StatFilter::all(), now }
    }

    /// A frontend.
    pub(crate) fn frontend(&self, plan: &FrontendPlan) -> StatRow {
        frontend::frontend(self.control, plan, self.generation.maxconn, self.now)
    }

    /// A socket of a frontend.
    pub(crate) fn listener(&self, plan: &ListenerPlan) -> StatRow {
        frontend::listener(self.control, &self.filter, plan)
    }

    /// A server of a backend.
    pub(crate) fn server(&self, plan: &BackendPlan, state: &ServerState) -> StatRow {
        backend::server(self.control, &self.filter, plan, state, &state.config(), self.now)
    }

    /// A backend with these servers.
    pub(crate) fn backend(&self, plan: &BackendPlan, states: &[Arc<ServerState>]) -> StatRow {
        backend::backend(self.control, &self.filter, plan, states, self.now)
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct StatFilter {
    /// The proxy's number; negative for all.
    proxy: i64,
    /// Kinds as bits.
    kinds: i64,
    /// The server's or socket's number; negative for all.
    id: i64,
    /// `up`: servers that are not up are left out.
    is_up: bool,
    /// `no-maint`: servers in maintenance are left out.
    no_maintenance: bool,
    /// Addresses and cookies are shown to those who may know them.
    shows_places: bool,
    /// Only proxies of these names; empty for all.
    names: Vec<String>,
    /// Only proxies with this in their names.
    part: String,
}

impl StatFilter {
    /// Everything, without addresses and cookies.
    fn all() -> StatFilter {
        StatFilter::of_page(Vec::new(), String::new(), false)
    }

    fn understand(model: &Model, call: &Call) -> Result<StatFilter, CommandResponse> {
        let mut words = call.args();
        if words.first().is_some_and(|word| word == "domain") {
            if words.get(1).is_none_or(|domain| domain != "proxy") {
                return Err(CommandResponse::error("Invalid statistics domain."));
            }
            words = &words[2..];
        }
        let mut wanted = StatFilter {
            proxy: -1,
            kinds: -1,
            id: -1,
            is_up: words.iter().any(|word| word == "up"),
            no_maintenance: words.iter().any(|word| word == "no-maint"),
            shows_places: call.level >= AccessLevel::Operator,
            names: Vec::new(),
            part: String::new(),
        };
        if let [proxy, kinds, id, ..] = words {
            // As HAProxy reads numbers: the digits in front, or zero.
            let number = |word: &String| leading_number(word).unwrap_or_default();
            (wanted.kinds, wanted.id) = (number(kinds), number(id));
            let named = model.proxies.iter().find(|known| &*known.name == proxy).map(|known| i64::from(known.id));
            wanted.proxy = match named.or(leading_number(proxy)) {
                Some(proxy) => proxy,
                None => return Err(CommandResponse::error("No such proxy.")),
            };
        }
        Ok(wanted)
    }

    /// What the statistics page shows: proxies of these names (all if there is none) with this part in their names.
    pub(crate) fn of_page(names: Vec<String>, part: String, shows_places: bool) -> StatFilter {
        StatFilter { proxy: -1, kinds: -1, id: -1, is_up: false, no_maintenance: false, shows_places, names, part }
    }

    /// Only servers that are up, or that are not in maintenance.
    pub(crate) fn only(self, is_up: bool, no_maintenance: bool) -> StatFilter {
        StatFilter { is_up, no_maintenance, ..self }
    }

    fn takes_proxy(&self, proxy: &Proxy) -> bool {
        (self.proxy < 0 || self.proxy == i64::from(proxy.id))
            && (self.names.is_empty() || self.names.iter().any(|name| **name == *proxy.name))
            && has_part(&proxy.name, &self.part)
    }

    fn takes(&self, kind: ObjectKind) -> bool {
        self.kinds & kind.bit() != 0
    }

    fn takes_id(&self, id: u32) -> bool {
        self.id < 0 || self.id == i64::from(id)
    }
}

/// Whether a part of a name is this, whatever the case of letters.
fn has_part(name: &str, part: &str) -> bool {
    let is_it = |window: &[u8]| window.eq_ignore_ascii_case(part.as_bytes());
    part.is_empty() || name.as_bytes().windows(part.len()).any(is_it)
}

/// The number at the beginning of a word.
pub(super) fn leading_number(word: &str) -> Option<i64> {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let end = digits.find(|char: char| !char.is_ascii_digit()).unwrap_or(digits.len());
    word[..word.len() - digits.len() + end].parse().ok()
}

/// `show stat`.
pub(super) fn show(control: &Control, call: &Call) -> Begun {
    if let [domain, resolvers, words @ ..] = call.args()
        && domain == "domain"
        && resolvers == "resolvers"
    {
        return Err(resolvers::table(control, Format::of(words)));
    }
    let wanted = StatFilter::understand(control.line.model(), call)?;
    Ok(Box::new(StatTable::new(control, wanted, Format::of(call.args()))))
}

impl Pieces for StatTable {
    fn next(&mut self, control: &Control) -> Option<String> {
        let mut out = String::new();
        self.piece(control, &mut out).then_some(out)
    }
}

fn header(out: &mut String) {
    out.push_str("# ");
    for (at, column) in COLUMNS.iter().enumerate() {
        if at == FIXED {
            out.push_str("-,");
        }
        out.push_str(column.name);
        out.push(',');
    }
    out.push('\n');
}

fn print(out: &mut String, line: &StatRow, format: Format) {
    let (letter, word) = line.kind.words();
    let (proxy, id) = (line.proxy, line.id);
    match format.form {
        Form::Plain => {
            for (at, value) in line.values.iter().enumerate() {
                if at == FIXED {
                    out.push_str("-,");
                }
                field::csv(out, value);
            }
            out.push('\n');
        }
        Form::Typed => {
            let whose = format!("{letter}.{proxy}.{id}.");
            for (at, value) in present(line) {
                field::typed(out, &whose, at, &COLUMNS[at], tag(line.kind, at), value, format.described);
            }
        }
        Form::Json => {
            let whose = format!("\"objType\":\"{word}\",\"proxyId\":{proxy},\"id\":{id},");
            for (number, (at, value)) in present(line).enumerate() {
                out.push(if number == 0 { '[' } else { ',' });
                field::json(out, &whose, at, &COLUMNS[at], tag(line.kind, at), value);
            }
            out.push(']');
        }
    }
}

fn present(line: &StatRow) -> impl Iterator<Item = (usize, &Value)> {
    line.values.iter().enumerate().filter(|(_, value)| **value != Value::None)
}

/// The tag of a column; a few differ with the kind of the object.
fn tag(kind: ObjectKind, at: usize) -> &'static str {
    const STATUS: [usize; 2] = [Column::Act as usize, Column::Bck as usize];
    const RATES: [usize; 2] = [Column::Rate as usize, Column::RateMax as usize];
    match kind {
        ObjectKind::Server if STATUS.contains(&at) => "SGP",
        ObjectKind::Backend if RATES.contains(&at) => "MGP",
        _ => COLUMNS[at].tag,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_their_fixed_places() {
        let at = |name: &str| COLUMNS.iter().position(|column| column.name == name);
        assert_eq!(
            (at("pxname"), at("status"), at("type"), at("addr"), at("uweight")),
            (Some(0), Some(17), Some(32), Some(73), Some(99))
        );
        assert_eq!(
            (COLUMNS[Column::Uweight as usize].name, COLUMNS[FIXED].name, COLUMNS.len()),
            ("uweight", "ssl_sess", 127)
        );
    }

    #[test]
    fn numbers_are_read_to_their_end() {
        let check = |word: &str, expect: Option<i64>| assert_eq!(leading_number(word), expect, "{word}");
        check("3", Some(3));
        check("-1", Some(-1));
        check("3x", Some(3));
        check("x", None);
        check("-", None);
    }
}
