//! `stick-table` lines (configuration manual, 4.2), and the same words of `table` lines in `peers` sections.

use std::sync::Arc;
use std::time::Duration;

use baton_model::{DataKind, DataType, KeyType, ServerKey, StickTable, Stored};

use crate::lower::{Call, Draft};
use crate::values::{self, TimeError, Unit};

/// Words of a line.
const WORDS: [&str; 10] =
    ["type", "size", "expire", "nopurge", "peers", "srvkey", "write-to", "recv-only", "brates-factor", "store"];
/// Types of keys.
const TYPES: [&str; 6] = ["ip", "ipv4", "ipv6", "integer", "string", "binary"];
/// Most entries: as in HAProxy, which counts them in 32 bits.
const SIZE_MAX: u64 = u32::MAX as u64;
/// The longest key: what fits into a message between peers with everything else.
const LENGTH_MAX: u32 = 4096;

/// `stick-table` of a proxy.
pub(crate) fn stick_table(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(first) = draft.lines.get("stick-table") {
        let (kind, name) = (draft.kind.word(), &draft.proxy.name);
        let message = format!(
            "stick-table name '{name}' conflicts with table declared in {kind} '{name}' at {}:{}.",
            first.file, first.number
        );
        return call.error(0, "duplicate-name", message);
    }
    draft.proxy.table = read(call, draft.proxy.name.clone(), true).map(Arc::new);
}

/// The words of a table from the first argument on. `None`: an error was reported. Only a table of a proxy can name a `peers` section.
pub(crate) fn read(call: &mut Call<'_, '_>, name: Arc<str>, names_peers: bool) -> Option<StickTable> {
    let mut table = StickTable::new(name, KeyType::Ip, 0);
    table.source = call.line.source();
    let mut key = None;
    let mut at = 0;
    while at < call.args() {
        let word = call.arg(at);
        at += 1;
        match word {
            "type" => key = Some(key_type(call, &mut at)?),
            "size" => table.size = size(call, &mut at)?,
            "expire" => table.expire = Some(expire(call, &mut at)?),
            "nopurge" => table.no_purge = true,
            "peers" if names_peers => table.peers = Some(argument(call, word, &mut at)?.into()),
            "srvkey" => {
                table.server_key = match call.arg(at) {
                    "name" => ServerKey::Name,
                    "addr" => ServerKey::Address,
                    other => {
                        call.not_one_of(
                            at,
                            format!("stick-table : unknown server key type '{other}'."),
                            ["name", "addr"],
                        );
                        return None;
                    }
                };
                at += 1;
            }
            "write-to" => table.write_to = Some(argument(call, word, &mut at)?.into()),
            "recv-only" => table.recv_only = true,
            "brates-factor" => table.bytes_factor = bytes_factor(call, &mut at)?,
            "store" => {
                for (text, place) in options(argument(call, word, &mut at)?, at - 1) {
                    store(call, &mut table.stored, text, place)?;
                }
            }
            other => {
                call.not_one_of(at - 1, format!("stick-table: unknown argument '{other}'."), WORDS);
                return None;
            }
        }
    }
    let missing = match (key, table.size) {
        (_, 0) => "size",
        (None, _) => "type",
        (Some(key), _) => {
            table.key = key;
            table.stored.sort_by_key(|stored| stored.data);
            return Some(table);
        }
    };
    call.error(0, "missing-argument", format!("stick-table: missing {missing}."));
    None
}

/// What must follow a word.
fn argument<'l>(call: &mut Call<'l, '_>, word: &str, at: &mut usize) -> Option<&'l str> {
    let argument = call.arg(*at);
    *at += 1;
    if argument.is_empty() {
        call.error(call.first + *at - 2, "missing-argument", format!("stick-table: missing argument after '{word}'."));
        return None;
    }
    Some(argument)
}

fn key_type(call: &mut Call<'_, '_>, at: &mut usize) -> Option<KeyType> {
    let word = call.arg(*at);
    let key = match word {
        "ip" | "ipv4" => KeyType::Ip,
        "ipv6" => KeyType::Ipv6,
        "integer" => KeyType::Integer,
        "string" => KeyType::String { length: KeyType::STRING },
        "binary" => KeyType::Binary { length: KeyType::BINARY },
        other => {
            call.not_one_of(*at, format!("stick-table: unknown type '{other}'."), TYPES);
            return None;
        }
    };
    *at += 1;
    if call.arg(*at) != "len" || !matches!(key, KeyType::String { .. } | KeyType::Binary { .. }) {
        return Some(key);
    }
    let text = call.arg(*at + 1);
    match text.parse::<u32>() {
        Ok(length @ 1..=LENGTH_MAX) => {
            *at += 2;
            Some(match key {
                KeyType::String { .. } => KeyType::String { length },
                _ => KeyType::Binary { length },
            })
        }
        _ => {
            call.wrong(*at + 1, format!("stick-table: 'len' expects a number from 1 to {LENGTH_MAX}, found '{text}'."));
            None
        }
    }
}

fn size(call: &mut Call<'_, '_>, at: &mut usize) -> Option<u64> {
    let text = argument(call, "size", at)?;
    match values::size(text).filter(|size| *size <= SIZE_MAX) {
        Some(size) => Some(size),
        None => {
            let odd = text.chars().find(|char| !char.is_ascii_digit());
            let message = match odd {
                Some(odd) => format!("stick-table: unexpected character '{odd}' in argument of 'size'."),
                None => format!("stick-table: 'size' is {SIZE_MAX} at most (was {text})."),
            };
            call.wrong(*at - 1, message);
            None
        }
    }
}

fn bytes_factor(call: &mut Call<'_, '_>, at: &mut usize) -> Option<u16> {
    let text = argument(call, "brates-factor", at)?;
    match text.parse::<u16>() {
        Ok(factor @ 1..=StickTable::BYTES_FACTOR_MAX) => Some(factor),
        _ => {
            let most = StickTable::BYTES_FACTOR_MAX;
            call.wrong(
                *at - 1,
                format!("stick-table: 'brates-factor' expects a number from 1 to {most}, found '{text}'."),
            );
            None
        }
    }
}

fn expire(call: &mut Call<'_, '_>, at: &mut usize) -> Option<Duration> {
    let text = argument(call, "expire", at)?;
    let message = match values::time(text, Unit::Ms) {
        Ok((expire, "")) => return Some(expire),
        Ok((_, rest)) => unexpected(rest.chars().next().unwrap_or_default()),
        Err(TimeError::Character(odd)) => unexpected(odd),
        Err(TimeError::Empty) => unexpected(' '),
        Err(TimeError::Overflow) => format!(
            "stick-table: timer overflow in argument <{text}> to <expire>, maximum value is {} ms (~24.8 days).",
            values::MAX_TIME.as_millis()
        ),
    };
    call.wrong(*at - 1, message);
    None
}

fn unexpected(odd: char) -> String {
    format!("stick-table: unexpected character '{odd}' in argument of 'expire'.")
}

/// The options of a `store`, which commas separate outside of parentheses, each with the argument that it stands in.
fn options(text: &str, place: usize) -> impl Iterator<Item = (&str, usize)> {
    let mut depth = 0_i32;
    let split = move |char| {
        depth += i32::from(char == '(') - i32::from(char == ')');
        char == ',' && depth == 0
    };
    text.split(split).map(move |option| (option, place))
}

/// One option of a `store`.
fn store(call: &mut Call<'_, '_>, all: &mut Vec<Stored>, text: &str, place: usize) -> Option<()> {
    let (name, argument) = match text.split_once('(') {
        Some((name, rest)) => (name, Some(rest.strip_suffix(')').unwrap_or(rest))),
        None => (text, None),
    };
    let Some(data) = DataType::of(name) else {
        let names = DataType::ALL.map(DataType::name);
        call.not_one_of(place, format!("stick-table: unknown store option '{name}'."), names);
        return None;
    };
    let mut wrong = |message: String| call.wrong(place, format!("stick-table: {message}"));
    let missing = || format!("missing argument to store option '{name}'.");
    let invalid = || format!("error when processing store option '{name}'.");
    let mut stored = Stored { data, elements: 1, period: None };
    let (elements, period) = match (data.kind(), argument) {
        (DataKind::I32 | DataKind::U32 | DataKind::U64 | DataKind::Dictionary, None) => (None, None),
        (DataKind::I32 | DataKind::U32 | DataKind::U64 | DataKind::Dictionary, Some(_)) => {
            wrong(format!("unexpected argument to store option '{name}'."));
            return None;
        }
        (DataKind::Rate, Some(period)) => (None, Some(period)),
        (DataKind::Array, Some(elements)) => (Some(elements), None),
        (DataKind::ArrayOfRates, Some(both)) if both.contains(',') => {
            let (elements, period) = both.split_once(',').unwrap_or_default();
            (Some(elements), Some(period))
        }
        (DataKind::Rate | DataKind::Array | DataKind::ArrayOfRates, _) => {
            wrong(missing());
            return None;
        }
    };
    if let Some(elements) = elements {
        match elements.trim().parse::<u64>() {
            Ok(count) if (1..=u64::from(Stored::ELEMENTS_MAX)).contains(&count) => stored.elements = count as u8,
            Ok(_) => {
                let most = Stored::ELEMENTS_MAX;
                wrong(format!("array size is out of allowed range (1-{most}) for store option '{name}'."));
                return None;
            }
            Err(_) => {
                wrong(invalid());
                return None;
            }
        }
    }
    if let Some(period) = period {
        match values::time(period.trim(), Unit::Ms) {
            Ok((period, "")) if !period.is_zero() => stored.period = Some(period),
            Ok((_, "")) => {
                wrong(format!("the period of store option '{name}' must be longer than 0."));
                return None;
            }
            _ => {
                wrong(invalid());
                return None;
            }
        }
    }
    if all.iter().any(|known| known.data == data) {
        let message = format!("stick-table: store option '{name}' already enabled, ignored.");
        call.warn(call.first + place, "duplicate-option", message);
        return Some(());
    }
    all.push(stored);
    match overridden(all) {
        None => Some(()),
        Some((array, single)) => {
            let message = format!(
                "stick-table: simultaneous usage of '{array}' and '{single}' in a same table is not permitted as \
                 '{array}' overrides '{single}'."
            );
            call.wrong(place, message);
            None
        }
    }
}

/// An array beside what it stands for.
fn overridden(all: &[Stored]) -> Option<(&'static str, &'static str)> {
    use DataType::{Gpc, Gpc0, Gpc0Rate, Gpc1, Gpc1Rate, GpcRate, Gpt, Gpt0};
    let has = |data| all.iter().any(|stored| stored.data == data);
    [
        (Gpt, [Gpt0, Gpt0], ("gpt", "gpt0")),
        (Gpc, [Gpc0, Gpc1], ("gpc", "gpc[0/1]")),
        (GpcRate, [Gpc0Rate, Gpc1Rate], ("gpc_rate", "gpc[0/1]_rate")),
    ]
    .into_iter()
    .find(|(array, singles, _)| has(*array) && singles.iter().any(|single| has(*single)))
    .map(|(_, _, names)| names)
}
