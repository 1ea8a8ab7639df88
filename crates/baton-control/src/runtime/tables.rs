//! Commands about stick tables (management guide, 9.3): `show`, `set` and `clear table`. Entries are what requests change too, so these
//! commands change them where they are; what concerns many of them is done in pieces, between which others have their turn.

mod filter;
mod text;

use std::sync::Arc;
use std::time::Instant;

use baton_model::{AccessLevel, DataKind, DataType, KeyType};
use baton_tables::{Cursor, Now, OwnedKey, Removed, Table, Tables};

use self::filter::{Filter, is_data};
use super::{Begun, Pieces};
use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;

/// Entries that are looked at for one piece of an answer.
const ENTRIES_PER_PIECE: usize = 512;

const CLEAR: &str = "Required arguments: <table> \"data.<store_data_type>\" <operator> <value> or <table> key <key>";
const SET: &str = "Required arguments: <table> key <key> [data.<store_data_type> <value>]*";
const SHOW: &str = "Optional argument only supports \"data.<store_data_type>\" <operator> <value> and key <key>";
const DENIED: &str = "Permission denied";
const INTEGER: &str = "Require a valid integer value to store";

/// What a command is about.
enum Selection {
    /// The entry of a key.
    Key(OwnedKey),
    /// Entries with data like this.
    Filter(Filter),
    /// All.
    All,
}

/// `show table`: all tables; or one of them, with its entries.
pub(super) fn show(control: &Control, call: &Call) -> Begun {
    if call.arg(0).is_empty() {
        // The last one of the configuration first, as in HAProxy.
        let names: Vec<_> = control.line.model().tables().map(|table| &table.name).collect();
        let tables = names.into_iter().rev().filter_map(|name| tables(control).get(name));
        let heads = tables.map(|table| text::head(&table)).collect();
        return Err(CommandResponse::Data(heads));
    }
    let table = named(control, call)?;
    match selection(&table, call, "Showing keys from", SHOW)? {
        Selection::Key(key) => {
            permitted(call)?;
            let found = table.find(&key.as_key(), now(control));
            let shown = found.map(|entry| {
                let mut out = text::head(&table);
                let record = entry.record(now(control));
                // The one who looks does not count.
                text::entry(&mut out, &table, &record, record.references.saturating_sub(1));
                out
            });
            Err(shown.map_or(CommandResponse::Done, CommandResponse::Data))
        }
        _ if call.level < AccessLevel::Operator => {
            let head = text::head(&table);
            Err(CommandResponse::Data(format!("{head}# contents not dumped due to insufficient privileges\n")))
        }
        Selection::Filter(filter) => Ok(Box::new(Listing::new(table, filter))),
        Selection::All => Ok(Box::new(Listing::new(table, Filter::default()))),
    }
}

/// `clear table`: removes entries that nobody tracks.
pub(super) fn clear(control: &Control, call: &Call) -> Begun {
    if call.arg(0).is_empty() {
        return Err(CommandResponse::error(CLEAR));
    }
    let table = named(control, call)?;
    let selection = selection(&table, call, "Removing keys from", CLEAR)?;
    permitted(call)?;
    let filter = match selection {
        Selection::Key(key) => {
            return Err(match table.remove(&key.as_key()) {
                Removed::Gone | Removed::Unknown => CommandResponse::Done,
                Removed::InUse => CommandResponse::error("Entry currently in use, cannot remove"),
            });
        }
        Selection::Filter(filter) => filter,
        Selection::All => Filter::default(),
    };
    Ok(Box::new(Clearing { table, filter, cursor: Cursor::default() }))
}

/// `set table`: values of an entry, which is created if there is none.
pub(super) fn set(control: &Control, call: &Call) -> CommandResponse {
    if call.arg(0).is_empty() {
        return CommandResponse::error(SET);
    }
    match set_in(control, call) {
        Ok(()) => CommandResponse::Done,
        Err(refusal) => refusal,
    }
}

fn set_in(control: &Control, call: &Call) -> Result<(), CommandResponse> {
    let table = named(control, call)?;
    if call.arg(1).is_empty() {
        return Ok(());
    }
    let Selection::Key(key) = selection(&table, call, "Inserting keys into", SET)? else {
        return Err(CommandResponse::error(SET));
    };
    permitted(call)?;
    let mut values = Vec::new();
    for pair in call.args()[3..].chunks(2) {
        let data = pair[0].strip_prefix("data.").ok_or("\"data.<type>\" followed by a value expected");
        let data = data.and_then(|name| DataType::of(name).ok_or("Unknown data type"));
        let data =
            data.and_then(|data| stores(&table, data).then_some(data).ok_or("Data type not stored in this table"));
        let value = data.and_then(|data| Ok((data, filter::integer(pair.get(1)).ok_or(INTEGER)?)));
        let (data, value) = value.map_err(CommandResponse::error)?;
        // It takes a number, which is none of a server.
        if data.kind() != DataKind::Dictionary {
            values.push((data, 0, value as u64));
        }
    }
    match table.set(&key.as_key(), &values, now(control)) {
        true => Ok(()),
        false => Err(CommandResponse::error("Unable to allocate a new entry")),
    }
}

fn tables(control: &Control) -> &Tables {
    &control.line.registry().tables
}

fn now(control: &Control) -> Now {
    control.line.registry().timeline.at(Instant::now())
}

/// The table that is named.
fn named(control: &Control, call: &Call) -> Result<Arc<Table>, CommandResponse> {
    tables(control).get(call.arg(0)).ok_or_else(|| CommandResponse::error("No such table"))
}

fn stores(table: &Table, data: DataType) -> bool {
    table.stored().iter().any(|stored| stored.data == data)
}

/// Contents are for operators, and to be changed by them.
fn permitted(call: &Call) -> Result<(), CommandResponse> {
    if call.level < AccessLevel::Operator { Err(CommandResponse::error(DENIED)) } else { Ok(()) }
}

/// What stands behind the name of the table. `doing` is what is done with its keys.
fn selection(table: &Table, call: &Call, doing: &str, usage: &str) -> Result<Selection, CommandResponse> {
    match call.arg(1) {
        "" => Ok(Selection::All),
        "key" => key(table.key_type(), call.arg(2), doing).map(Selection::Key).map_err(CommandResponse::error),
        word if is_data(word) => {
            Filter::parse(table.stored(), call).map(Selection::Filter).map_err(CommandResponse::error)
        }
        _ => Err(CommandResponse::error(usage)),
    }
}

/// A key as it is written.
fn key(kind: KeyType, text: &str, doing: &str) -> Result<OwnedKey, String> {
    if text.is_empty() {
        return Err("Key value expected".into());
    }
    let key = match kind {
        KeyType::Ip => text.parse().ok().map(OwnedKey::Ip),
        KeyType::Ipv6 => text.parse().ok().map(OwnedKey::Ipv6),
        KeyType::Integer => text.parse().ok().map(OwnedKey::Integer),
        KeyType::String { .. } => Some(OwnedKey::String(text.as_bytes().into())),
        KeyType::Binary { .. } => {
            return Err(format!("{doing} tables of type other than ip, ipv6, string and integer is not supported"));
        }
    };
    key.ok_or_else(|| "Invalid key".into())
}

/// Entries of a table, some at a time.
struct Listing {
    table: Arc<Table>,
    filter: Filter,
    cursor: Cursor,
    head: Option<String>,
}

impl Listing {
    fn new(table: Arc<Table>, filter: Filter) -> Listing {
        let head = Some(text::head(&table));
        Listing { table, filter, cursor: Cursor::default(), head }
    }
}

impl Pieces for Listing {
    fn next(&mut self, control: &Control) -> Option<String> {
        if let Some(head) = self.head.take() {
            return Some(head);
        }
        if self.cursor.is_done() {
            return None;
        }
        let mut out = String::new();
        for record in self.table.page(&mut self.cursor, ENTRIES_PER_PIECE, now(control)) {
            if self.filter.accepts(&self.table, &record) {
                text::entry(&mut out, &self.table, &record, record.references);
            }
        }
        Some(out)
    }
}

/// The removal of entries, some at a time.
struct Clearing {
    table: Arc<Table>,
    filter: Filter,
    cursor: Cursor,
}

impl Pieces for Clearing {
    fn next(&mut self, control: &Control) -> Option<String> {
        if self.cursor.is_done() {
            return None;
        }
        for record in self.table.page(&mut self.cursor, ENTRIES_PER_PIECE, now(control)) {
            if self.filter.accepts(&self.table, &record) {
                // One that is tracked stays.
                let _: Removed = self.table.remove(&record.key.as_key());
            }
        }
        Some(String::new())
    }
}
