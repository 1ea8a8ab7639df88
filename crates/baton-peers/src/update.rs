//! Entries in updates: a key, and a value for each type of data that the definition announces.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use baton_model::{DataKind, DataType, KeyType, Stored};
use baton_tables::{Key, OwnedKey, Record, Value};

use crate::definition::Columns;
use crate::dictionary::{ReceivedTexts, SentTexts};
use crate::frame::{Fields, PAYLOAD_MAX, Violation};
use crate::varint;

/// Appends key and values of an entry as its table stores them. `false`: it is too long for a frame, and nothing of it may be sent.
pub fn write(out: &mut Vec<u8>, stored: &[Stored], record: &Record, texts: &mut SentTexts) -> bool {
    let start = out.len();
    write_key(out, &record.key);
    let mut values = record.values.iter().peekable();
    for column in stored {
        for index in 0..column.elements {
            // Values stand in the order of types and indices. One that is missing is sent as 0.
            let place = (column.data, index);
            while values.next_if(|(data, index, _)| (*data, *index) < place).is_some() {}
            let value = values.next_if(|(data, index, _)| (*data, *index) == place).map(|(.., value)| value);
            write_value(out, column.data.kind(), value, texts);
        }
    }
    // The number and the life stand before it.
    out.len() - start + 8 <= PAYLOAD_MAX
}

fn write_key(out: &mut Vec<u8>, key: &OwnedKey) {
    match key {
        OwnedKey::Ip(address) => out.extend_from_slice(&address.octets()),
        OwnedKey::Ipv6(address) => out.extend_from_slice(&address.octets()),
        OwnedKey::Integer(number) => out.extend_from_slice(&number.to_be_bytes()),
        OwnedKey::String(text) => {
            varint::write(out, text.len() as u64);
            out.extend_from_slice(text);
        }
        OwnedKey::Binary(bytes) => out.extend_from_slice(bytes),
    }
}

fn write_value(out: &mut Vec<u8>, kind: DataKind, value: Option<&Value>, texts: &mut SentTexts) {
    match kind {
        DataKind::Dictionary => {
            let text: Option<&Arc<str>> = match value {
                Some(Value::ServerKey(text)) => text.as_ref(),
                _ => None,
            };
            texts.write(out, text);
        }
        DataKind::Rate | DataKind::ArrayOfRates => {
            let (elapsed, current, previous) = match value {
                Some(Value::Rate { elapsed_ms, current, previous }) => (*elapsed_ms, *current, *previous),
                _ => (0, 0, 0),
            };
            [elapsed, current, previous].into_iter().for_each(|number| varint::write(out, u64::from(number)));
        }
        DataKind::I32 | DataKind::U32 | DataKind::U64 | DataKind::Array => {
            let number = match value {
                Some(Value::Number(number)) => *number,
                _ => 0,
            };
            // A negative number is sent as one of 64 bits.
            varint::write(out, if kind == DataKind::I32 { i64::from(number as u32 as i32) as u64 } else { number });
        }
    }
}

/// A key as it was received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReceivedKey<'a> {
    key: KeyType,
    bytes: &'a [u8],
}

impl<'a> ReceivedKey<'a> {
    /// Reads the key of a table.
    ///
    /// # Errors
    /// It is cut short.
    pub fn read(fields: &mut Fields<'a>, key: KeyType) -> Result<ReceivedKey<'a>, Violation> {
        let bytes = match key {
            KeyType::String { length } => {
                let text = fields.counted()?;
                &text[..text.len().min(length as usize)]
            }
            KeyType::Ip | KeyType::Ipv6 | KeyType::Integer | KeyType::Binary { .. } => {
                fields.bytes(key.length() as usize)?
            }
        };
        Ok(ReceivedKey { key, bytes })
    }

    /// To look for it in a table.
    pub fn as_key(&self) -> Key<'a> {
        let four = self.bytes.first_chunk().copied().unwrap_or_default();
        match self.key {
            KeyType::Ip => Key::from_ip(Ipv4Addr::from(four)),
            KeyType::Integer => Key::from_integer(u32::from_be_bytes(four)),
            KeyType::Ipv6 => {
                Key::from_ipv6(Ipv6Addr::from(self.bytes.first_chunk::<16>().copied().unwrap_or_default()))
            }
            KeyType::String { .. } => Key::from_string(self.bytes),
            KeyType::Binary { .. } => Key::from_binary(self.bytes),
        }
    }
}

/// Reads the values of an entry, in order; a text that is not known is left out.
///
/// # Errors
/// They are cut short, or a text has a wrong number.
pub fn read_values(
    fields: &mut Fields<'_>,
    columns: &Columns,
    texts: &mut ReceivedTexts,
    values: &mut Vec<(DataType, u8, Value)>,
) -> Result<(), Violation> {
    values.clear();
    for column in &columns.0 {
        for index in 0..column.elements {
            let value = match column.data.kind() {
                DataKind::Dictionary => match texts.read(fields)? {
                    None => continue,
                    text => Value::ServerKey(text),
                },
                DataKind::Rate | DataKind::ArrayOfRates => Value::Rate {
                    elapsed_ms: fields.varint()? as u32,
                    current: fields.varint()? as u32,
                    previous: fields.varint()? as u32,
                },
                DataKind::U64 => Value::Number(fields.varint()?),
                DataKind::I32 | DataKind::U32 | DataKind::Array => Value::Number(u64::from(fields.varint()? as u32)),
            };
            values.push((column.data, index, value));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::definition::Column;
    use crate::definition::tests::{hex, table};

    fn number(number: u64) -> Value {
        Value::Number(number)
    }

    fn rate(elapsed_ms: u32, current: u32, previous: u32) -> Value {
        Value::Rate { elapsed_ms, current, previous }
    }

    fn server(name: &str) -> Value {
        Value::ServerKey(Some(name.into()))
    }

    fn columns(stored: &[Stored]) -> Columns {
        Columns(stored.iter().map(|stored| Column { data: stored.data, elements: stored.elements }).collect())
    }

    fn record(key: OwnedKey, stored: &[Stored], values: Vec<Value>) -> Record {
        let places = stored.iter().flat_map(|stored| (0..stored.elements).map(|index| (stored.data, index)));
        let values = places.zip(values).map(|((data, index), value)| (data, index, value)).collect();
        Record { key, expires_ms: None, references: 0, values }
    }

    /// Writes an entry and reads it again.
    fn check(
        bytes: &str,
        key: OwnedKey,
        key_type: KeyType,
        stored: &str,
        values: Vec<Value>,
        texts: &mut (SentTexts, ReceivedTexts),
    ) {
        let stored = table("t", key_type, None, stored).stored;
        let record = record(key, &stored, values);
        let mut out = Vec::new();
        assert!(write(&mut out, &stored, &record, &mut texts.0));
        assert_eq!(out, hex(bytes));
        let mut fields = Fields::of(&out);
        let read = ReceivedKey::read(&mut fields, key_type).expect("whole");
        assert_eq!(format!("{:?}", read.as_key()), format!("{:?}", record.key.as_key()));
        let mut values = Vec::new();
        read_values(&mut fields, &columns(&stored), &mut texts.1, &mut values).expect("whole");
        assert_eq!((values, fields.is_empty()), (record.values, true));
    }

    #[test]
    fn entries_are_those_of_haproxy() {
        let mut texts = Default::default();
        let string = KeyType::String { length: 20 };
        let alpha = || OwnedKey::String(b"alpha"[..].into());
        let stored = "server_id bytes_out_cnt server_key";
        let values = || vec![number(7), number(0), server("s1")];
        check("05 616c706861 07 00 04 01 02 7331", alpha(), string, stored, values(), &mut texts);
        check("05 616c706861 07 00 01 01", alpha(), string, stored, values(), &mut texts);
        let ip = OwnedKey::Ip(Ipv4Addr::LOCALHOST);
        let stored = "gpc0 gpc0_rate(9) conn_cnt conn_cur http_req_rate(9)";
        let values = vec![number(5), rate(1206, 5, 0), number(5), number(1), rate(1206, 5, 0)];
        check("7f000001 05 f63c 05 00 05 01 f63c 05 00", ip.clone(), KeyType::Ip, stored, values, &mut texts);
        let values = vec![number(1), server("127.0.0.1:8002")];
        let mut fresh = Default::default();
        check(
            "7f000001 01 10 01 0e 3132372e302e302e313a38303032",
            ip,
            KeyType::Ip,
            "server_id server_key",
            values,
            &mut fresh,
        );
        let ipv6 = OwnedKey::Ipv6("2001:db8::1".parse().expect("an address"));
        let values = vec![number(0), number(0), number(2288)];
        check("20010db8000000000000000000000001 00 00 f08000", ipv6, KeyType::Ipv6, "gpt(3)", values, &mut texts);
        let stored = "bytes_in_cnt gpc(2) gpc_rate(2,9)";
        let values = vec![number(104), number(0), number(2), rate(0x7df5_f8f9, 0, 0), rate(251, 2, 0)];
        let integer = OwnedKey::Integer(0x1234_5678);
        let unused = varint_text(0x7df5_f8f9);
        let bytes = format!("12345678 68 00 02 {unused} 00 00 fb00 02 00");
        check(&bytes, integer, KeyType::Integer, stored, values, &mut texts);
        let binary = OwnedKey::Binary([0x37, 0x41, 0, 0, 0, 0].into());
        let values = vec![number(4_294_967_295)];
        check("374100000000 fff0fefe7e", binary, KeyType::Binary { length: 6 }, "gpt0", values, &mut texts);
    }

    fn varint_text(value: u64) -> String {
        let mut out = Vec::new();
        varint::write(&mut out, value);
        out.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn numbers_of_32_bits_are_cut_and_texts_end() {
        let mut values = Vec::new();
        let stored = table("t", KeyType::Ip, None, "server_id gpc0").stored;
        let mut out = Vec::new();
        varint::write(&mut out, (-3_i64) as u64);
        varint::write(&mut out, (1 << 32) + 7);
        read_values(&mut Fields::of(&out), &columns(&stored), &mut ReceivedTexts::default(), &mut values)
            .expect("whole");
        assert_eq!(values[0].2, number(0xffff_fffd));
        assert_eq!(values[1].2, number(7));
        let negative = record(OwnedKey::Ip(Ipv4Addr::LOCALHOST), &stored, vec![number(0xffff_fffd), number(7)]);
        let mut again = Vec::new();
        assert!(write(&mut again, &stored, &negative, &mut SentTexts::default()));
        let mut fields = Fields::of(&again[4..]);
        assert_eq!(fields.varint(), Ok((-3_i64) as u64));
        let key = |bytes: &'static [u8]| {
            ReceivedKey::read(&mut Fields::of(bytes), KeyType::String { length: 3 }).map(|key| key.bytes)
        };
        assert_eq!(key(b"\x05abcde"), Ok(&b"abc"[..]));
        assert_eq!(key(b"\0"), Ok(&b""[..]));
        assert_eq!(key(b"\x05abcd"), Err(Violation::Protocol));
    }

    #[test]
    fn an_entry_that_no_frame_can_have_is_not_sent() {
        let key = KeyType::Binary { length: 16_384 };
        let record = record(OwnedKey::Binary(vec![7; 16_384].into()), &[], Vec::new());
        let mut out = Vec::new();
        assert!(!write(&mut out, &table("t", key, None, "").stored, &record, &mut SentTexts::default()));
    }

    proptest! {
        #[test]
        fn any_payload_is_read(bytes: Vec<u8>) {
            let stored = table("t", KeyType::Ip, None, "server_id gpc0_rate(1) bytes_in_cnt server_key gpt(2) gpc_rate(2,5)").stored;
            let mut fields = Fields::of(&bytes);
            if ReceivedKey::read(&mut fields, KeyType::String { length: 5 }).is_ok() {
                let _ = read_values(&mut fields, &columns(&stored), &mut ReceivedTexts::default(), &mut Vec::new());
            }
        }
    }
}
