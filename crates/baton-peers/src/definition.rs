//! Definitions: what an update is about. Each side numbers tables by itself, and says which data its updates have.

use std::time::Duration;

use baton_model::{DataKind, DataType, KeyType, StickTable, Stored};

use crate::frame::{Fields, Violation};
use crate::varint;

/// A definition that was received.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Definition<'a> {
    /// The sender's number of the table.
    pub id: u64,
    /// Its name: that of a proxy, or `/NAME` for one of the section itself.
    pub name: &'a [u8],
    key_type: u64,
    key_length: u64,
    bits: u64,
    /// What follows the bits, if something does.
    rest: &'a [u8],
}

/// What updates of a definition have, in order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Columns(pub Vec<Column>);

/// One type of data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Column {
    /// Which.
    pub data: DataType,
    /// How many elements the sender has of it.
    pub elements: u8,
}

impl<'a> Definition<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// Fields are missing, or there is no name.
    pub fn read(payload: &'a [u8]) -> Result<Definition<'a>, Violation> {
        let mut fields = Fields::of(payload);
        let id = fields.varint()?;
        let name = fields.counted()?;
        if name.is_empty() {
            return Err(Violation::Protocol);
        }
        let (key_type, key_length, bits) = (fields.varint()?, fields.varint()?, fields.varint()?);
        Ok(Definition { id, name, key_type, key_length, bits, rest: fields.rest() })
    }

    /// The types of data that are announced, one bit each.
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// What its updates have, if its keys are those of this table and its parameters are right; updates are dropped otherwise.
    pub fn columns(&self, key: KeyType) -> Option<Columns> {
        if (self.key_type, self.key_length) != (type_number(key), wire_length(key)) {
            return None;
        }
        let mut fields = Fields::of(self.rest);
        // How long an entry lives is the receiver's own business.
        let has_parameters = !fields.is_empty();
        if has_parameters {
            fields.varint().ok()?;
        }
        let announced = DataType::ALL.into_iter().filter(|data| self.bits & (1 << data.bit()) != 0);
        let column = |data: DataType| {
            let kind = data.kind();
            let is_array = matches!(kind, DataKind::Array | DataKind::ArrayOfRates);
            let is_rate = matches!(kind, DataKind::Rate | DataKind::ArrayOfRates);
            let mut elements = 1;
            if has_parameters && (is_array || is_rate) {
                if fields.varint().ok()? != u64::from(data.bit()) {
                    return None;
                }
                if is_array {
                    elements = u8::try_from(fields.varint().ok()?).ok()?;
                }
                // By which period it is calculated is the receiver's business, too.
                if is_rate {
                    fields.varint().ok()?;
                }
            } else if is_array {
                return None;
            }
            (1..=Stored::ELEMENTS_MAX).contains(&elements).then_some(Column { data, elements })
        };
        announced.map(column).collect::<Option<_>>().map(Columns)
    }
}

/// The payload of a table's definition, under this number and name.
pub fn payload(id: u64, name: &str, table: &StickTable) -> Vec<u8> {
    let milliseconds =
        |time: Option<Duration>| time.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let mut out = Vec::new();
    varint::write(&mut out, id);
    varint::write(&mut out, name.len() as u64);
    out.extend_from_slice(name.as_bytes());
    varint::write(&mut out, type_number(table.key));
    varint::write(&mut out, wire_length(table.key));
    varint::write(&mut out, table.stored.iter().fold(0, |bits, stored| bits | (1 << stored.data.bit())));
    varint::write(&mut out, milliseconds(table.expire));
    for stored in &table.stored {
        let kind = stored.data.kind();
        if matches!(kind, DataKind::Rate | DataKind::Array | DataKind::ArrayOfRates) {
            varint::write(&mut out, u64::from(stored.data.bit()));
        }
        if matches!(kind, DataKind::Array | DataKind::ArrayOfRates) {
            varint::write(&mut out, u64::from(stored.elements));
        }
        if matches!(kind, DataKind::Rate | DataKind::ArrayOfRates) {
            varint::write(&mut out, milliseconds(stored.period));
        }
    }
    out
}

/// The number of a type of keys.
fn type_number(key: KeyType) -> u64 {
    match key {
        KeyType::Integer => 2,
        KeyType::Ip => 4,
        KeyType::Ipv6 => 5,
        KeyType::String { .. } => 6,
        KeyType::Binary { .. } => 7,
    }
}

/// The length of keys as it is announced: of a text, with the byte that ends it.
fn wire_length(key: KeyType) -> u64 {
    match key {
        KeyType::String { length } => u64::from(length) + 1,
        KeyType::Ip | KeyType::Ipv6 | KeyType::Integer | KeyType::Binary { .. } => u64::from(key.length()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A table that stores these, as `NAME`, `NAME(elements)`, `NAME(period)` or `NAME(elements,period)`.
    pub(crate) fn table(name: &str, key: KeyType, expire: Option<u64>, stored: &str) -> StickTable {
        let mut table = StickTable::new(name, key, 100_000);
        table.expire = expire.map(Duration::from_millis);
        for word in stored.split_whitespace() {
            let (name, arguments) = word.strip_suffix(')').and_then(|word| word.split_once('(')).unwrap_or((word, ""));
            let data = DataType::of(name).expect("a type of data");
            let mut numbers = arguments.split(',').filter_map(|number| number.parse().ok());
            let elements = match data.kind() {
                DataKind::Array | DataKind::ArrayOfRates => numbers.next().expect("elements") as u8,
                _ => 1,
            };
            table.stored.push(Stored { data, elements, period: numbers.next().map(Duration::from_millis) });
        }
        table
    }

    /// Bytes of a sample.
    pub(crate) fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex");
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn definitions_are_those_of_haproxy() {
        let check = |bytes: &str, id, name: &str, table: &StickTable| {
            let bytes = hex(bytes);
            assert_eq!(payload(id, name, table), bytes);
            let definition = Definition::read(&bytes).expect("whole");
            assert_eq!((definition.id, definition.name), (id, name.as_bytes()));
            let expect = table.stored.iter().map(|stored| Column { data: stored.data, elements: stored.elements });
            assert_eq!(definition.columns(table.key), Some(Columns(expect.collect())));
            assert_eq!(definition.columns(KeyType::Binary { length: 77 }), None);
        };
        let key = KeyType::String { length: 20 };
        let stored = "server_id bytes_out_cnt server_key";
        check("02 05 745f737472 06 15 f1f18e01 f0d9dc0c", 2, "t_str", &table("t_str", key, Some(3_600_000), stored));
        let t1 =
            table("mp/t1", KeyType::Ip, Some(600_000), "gpc0 gpc0_rate(10000) conn_cnt conn_cur http_req_rate(30000)");
        check("01 03 2f7431 04 04 fc36 f0eda301 03 f0e203 0a f0c40d", 1, "/t1", &t1);
        let int = table("t_int", KeyType::Integer, Some(60_000), "bytes_in_cnt gpc(2) gpc_rate(2,10000)");
        check("08 05 745f696e74 02 04 f0f1825f f0971c 17 02 18 02 f0e203", 8, "t_int", &int);
        let glitches =
            table("mp/tg", KeyType::String { length: 8 }, Some(600_000), "gpc0 glitch_cnt glitch_rate(10000)");
        check("05 03 2f7467 06 09 f4f1fefe01 f0eda301 1a f0e203", 5, "/tg", &glitches);
        let binary = table("t_bin", KeyType::Binary { length: 6 }, Some(30_000), "gpt0");
        check("09 05 745f62696e 07 06 02 f0c40d", 9, "t_bin", &binary);
    }

    #[test]
    fn what_a_definition_may_lack() {
        let columns = |bytes: &str| {
            let bytes = hex(bytes);
            Definition::read(&bytes).map(|definition| definition.columns(KeyType::Ip).map(|columns| columns.0.len()))
        };
        // gpc0 and its rate; nothing follows the bits.
        assert_eq!(columns("01 01 74 04 04 0c"), Ok(Some(2)));
        // Time, and no parameters of the rate; those of another type; the right ones, with more behind.
        assert_eq!(columns("01 01 74 04 04 0c 05"), Ok(None));
        assert_eq!(columns("01 01 74 04 04 0c 05 0a 05"), Ok(None));
        assert_eq!(columns("01 01 74 04 04 0c 05 03 05 ee ee"), Ok(Some(2)));
        // gpc(n): none, 0, 100 and 101 elements.
        assert_eq!(columns("01 01 74 04 04 f0f1fe3e"), Ok(None));
        assert_eq!(columns("01 01 74 04 04 f0f1fe3e 00 17 00"), Ok(None));
        // A bit that nobody knows.
        assert_eq!(columns("01 01 74 04 04 f4f1fefefe01 00"), Ok(Some(1)));
        // Other keys.
        assert_eq!(columns("01 01 74 04 05 04 00"), Ok(None));
        assert_eq!(columns("01 01 74 05 04 04 00"), Ok(None));
        for short in ["", "01", "01 00 04 04 04", "01 01 74", "01 01 74 04 04", "01 05 74 04 04"] {
            assert_eq!(columns(short), Err(Violation::Protocol), "{short}");
        }
    }

    proptest! {
        #[test]
        fn any_definition_is_judged(bytes: Vec<u8>) {
            if let Ok(definition) = Definition::read(&bytes) {
                let _ = definition.columns(KeyType::Ip);
            }
        }

        #[test]
        fn what_is_defined_is_read(bits in 0_u64..1 << 27, elements in 1_u8..=100, period: u32, id: u64, name in "[a-z/]{1,40}") {
            let mut table = StickTable::new("t", KeyType::Ipv6, 1);
            for data in DataType::ALL.into_iter().filter(|data| bits & (1 << data.bit()) != 0) {
                let is_array = matches!(data.kind(), DataKind::Array | DataKind::ArrayOfRates);
                let is_rate = matches!(data.kind(), DataKind::Rate | DataKind::ArrayOfRates);
                let period = is_rate.then(|| Duration::from_millis(u64::from(period)));
                table.stored.push(Stored { data, elements: if is_array { elements } else { 1 }, period });
            }
            let bytes = payload(id, &name, &table);
            let definition = Definition::read(&bytes).expect("whole");
            prop_assert_eq!((definition.id, definition.name, definition.bits()), (id, name.as_bytes(), bits));
            let expect = table.stored.iter().map(|stored| Column { data: stored.data, elements: stored.elements });
            prop_assert_eq!(definition.columns(KeyType::Ipv6), Some(Columns(expect.collect())));
        }
    }
}
