//! Filters of entries by what is stored with them: `data.gpc0 gt 5 data.conn_cnt eq 1`.

use baton_model::{DataType, Stored};
use baton_tables::{Record, Table};

use crate::operators::Call;

/// Most conditions of one filter.
const CONDITIONS_MAX: usize = 4;

/// What an entry has to be like: all of it.
#[derive(Debug, Default)]
pub(super) struct Filter(Vec<Condition>);

/// `data.TYPE OPERATOR VALUE`.
#[derive(Debug)]
struct Condition {
    data: DataType,
    holds: fn(&i64, &i64) -> bool,
    value: i64,
}

/// Whether a word begins a condition.
pub(super) fn is_data(word: &str) -> bool {
    word.starts_with("data.")
}

/// An integer as HAProxy reads it here: digits, behind a minus if it is negative.
pub(super) fn integer(word: Option<&String>) -> Option<i64> {
    word.filter(|word| !word.starts_with('+'))?.parse().ok()
}

impl Filter {
    /// Reads what stands behind the name of the table.
    pub fn parse(stored: &[Stored], call: &Call) -> Result<Filter, String> {
        let words = &call.args()[1..];
        let mut conditions = Vec::new();
        for (at, triple) in words.chunks(3).enumerate() {
            if at == CONDITIONS_MAX {
                let place = call.name_words + 2 + at * 3;
                let before = &words[at * 3 - 1];
                return Err(format!("Detected extra data in filter, {place}th word of input, after '{before}'"));
            }
            let condition =
                Condition::parse(stored, triple).map_err(|why| format!("Filter entry #{}: {why}", at + 1))?;
            conditions.push(condition);
        }
        Ok(Filter(conditions))
    }

    /// Whether an entry is like this.
    pub fn accepts(&self, table: &Table, record: &Record) -> bool {
        self.0.iter().all(|condition| (condition.holds)(&number(table, record, condition.data), &condition.value))
    }
}

impl Condition {
    fn parse(stored: &[Stored], words: &[String]) -> Result<Condition, &'static str> {
        let name = words[0].strip_prefix("data.").ok_or("Unknown data type")?;
        let data = DataType::of(name).ok_or("Unknown data type")?;
        if !stored.iter().any(|stored| stored.data == data) {
            return Err("Data type not stored in this table");
        }
        let holds: fn(&i64, &i64) -> bool = match words.get(1).map(String::as_str) {
            Some("eq") => i64::eq,
            Some("ne") => i64::ne,
            Some("le") => i64::le,
            Some("ge") => i64::ge,
            Some("lt") => i64::lt,
            Some("gt") => i64::gt,
            _ => return Err("Require and operator among \"eq\", \"ne\", \"le\", \"ge\", \"lt\", \"gt\""),
        };
        let value = integer(words.get(2)).ok_or("Require a valid integer value to compare against")?;
        Ok(Condition { data, holds, value })
    }
}

/// What is compared: of an array its first element, of a rate its value now. A server is 0.
fn number(table: &Table, record: &Record, data: DataType) -> i64 {
    record.value(data, 0).and_then(|value| table.number(data, value)).map_or(0, |number| number as i64)
}
