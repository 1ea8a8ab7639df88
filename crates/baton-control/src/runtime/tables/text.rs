//! How tables and their entries are written, as HAProxy does.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

use baton_model::{DataKind, DataType};
use baton_tables::{OwnedKey, Record, Table, Value};

/// The line of a table.
pub(super) fn head(table: &Table) -> String {
    let (name, kind) = (table.name(), table.key_type().word());
    format!("# table: {name}, type: {kind}, size:{}, used:{}\n", table.size(), table.used())
}

/// The line of an entry, which so many track.
pub(super) fn entry(out: &mut String, table: &Table, record: &Record, references: u32) {
    // Where HAProxy has the address of its memory: as long as an entry lives, this is the same, and another one than that of any other.
    let mut hasher = DefaultHasher::new();
    record.key.hash(&mut hasher);
    let number = hasher.finish() & 0xffff_ffff_ffff;
    // Writing to a string cannot fail.
    let _ = write!(out, "0x{number:012x}: key=");
    key(out, &record.key);
    let _ = write!(out, " use={references} exp={}", record.expires_ms.unwrap_or(0));
    for (data, index, value) in &record.values {
        let period = table.stored().iter().find(|stored| stored.data == *data).and_then(|stored| stored.period);
        let period = period.map_or(0, |period| u32::try_from(period.as_millis()).unwrap_or(u32::MAX));
        let _ = match data.kind() {
            DataKind::Array => write!(out, " {}{index}=", data.name()),
            DataKind::ArrayOfRates => write!(out, " {}{index}_rate({period})=", elements(*data)),
            DataKind::Rate => write!(out, " {}({period})=", data.name()),
            DataKind::I32 | DataKind::U32 | DataKind::U64 | DataKind::Dictionary => write!(out, " {}=", data.name()),
        };
        let _ = match value {
            Value::ServerKey(server) => write!(out, "{}", server.as_deref().unwrap_or("-")),
            Value::Number(number) if data.kind() == DataKind::I32 => write!(out, "{}", *number as i32),
            value => write!(out, "{}", table.number(*data, value).unwrap_or(0)),
        };
    }
    out.push('\n');
}

/// What the elements of an array of rates are the rates of.
fn elements(data: DataType) -> &'static str {
    data.name().trim_end_matches("_rate")
}

fn key(out: &mut String, key: &OwnedKey) {
    let _ = match key {
        OwnedKey::Ip(address) => write!(out, "{address}"),
        OwnedKey::Ipv6(address) => write!(out, "{address}"),
        OwnedKey::Integer(number) => write!(out, "{number}"),
        OwnedKey::String(text) => return escaped(out, text),
        OwnedKey::Binary(bytes) => bytes.iter().try_for_each(|byte| write!(out, "{byte:02X}")),
    };
}

/// Text in one word, of characters that can be shown.
fn escaped(out: &mut String, text: &[u8]) {
    for byte in text {
        let _ = match byte {
            b'\n' => write!(out, "\\n"),
            b'\t' => write!(out, "\\t"),
            b'\r' => write!(out, "\\r"),
            0x1b => write!(out, "\\e"),
            b' ' | b'\\' | b'=' => write!(out, "\\{}", *byte as char),
            0x21..=0x7e => write!(out, "{}", *byte as char),
            _ => write!(out, "\\x{byte:02X}"),
        };
    }
}
