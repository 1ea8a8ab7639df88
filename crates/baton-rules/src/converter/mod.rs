//! Converters: one row each. To add one, write its function and its row.

mod capture;
mod date;
mod debug;
mod digest;
mod encode;
mod fix;
mod forwarded;
mod hash;
mod json;
mod jwt;
mod language;
mod map;
mod mqtt;
mod number;
mod protobuf;
mod table;
mod text;
mod variable;
mod x509;

pub(crate) use debug::ExchangeCondition;
pub(crate) use digest::Digest;
pub(crate) use encode::{from_base64, hex_pair};
pub(crate) use forwarded::{is_forwarded_host, is_obfuscated};
pub use hash::crc32c;
pub(crate) use hash::{avalanche, sdbm};
pub(crate) use jwt::{JwtKey, read_key};
pub(crate) use protobuf::FieldPath;

use crate::args::{Arg, Check, Value};
use crate::context::Context;
use crate::reference::MatchSpec;
use crate::sample::{Sample, Type};

/// Changes a sample, which was cast to the row's `takes` before.
pub(crate) type ConverterFn = for<'c> fn(Sample<'c>, &'c [Value], &'c Context<'_>) -> Option<Sample<'c>>;

/// A row.
pub(crate) struct Converter {
    pub name: &'static str,
    pub args: &'static [Arg],
    pub takes: Type,
    pub gives: Type,
    /// What it gives with these arguments, where they decide.
    pub gives_by: Option<fn(&[Value]) -> Type>,
    /// Checks the arguments further and may replace them.
    pub check: Option<Check>,
    pub eval: ConverterFn,
    /// Of a map, which its first argument names: how it is looked up.
    pub map: Option<MatchSpec>,
    /// What it gives, for help and manual.
    pub doc: &'static str,
}

impl Converter {
    const fn new(name: &'static str, takes: Type, gives: Type, eval: ConverterFn, doc: &'static str) -> Converter {
        Converter { name, args: &[], takes, gives, gives_by: None, check: None, eval, map: None, doc }
    }

    const fn args(mut self, args: &'static [Arg]) -> Converter {
        self.args = args;
        self
    }

    /// What it gives with these arguments.
    pub fn gives_with(&self, args: &[Value]) -> Type {
        self.gives_by.map_or(self.gives, |by| by(args))
    }

    const fn gives(mut self, by: fn(&[Value]) -> Type) -> Converter {
        self.gives_by = Some(by);
        self
    }

    const fn check(mut self, check: Check) -> Converter {
        self.check = Some(check);
        self
    }
}

const TABLES: [&[Converter]; 19] = [
    capture::ROWS,
    debug::ROWS,
    text::ROWS,
    encode::ROWS,
    number::ROWS,
    hash::ROWS,
    digest::ROWS,
    json::ROWS,
    jwt::ROWS,
    date::ROWS,
    language::ROWS,
    forwarded::ROWS,
    variable::ROWS,
    x509::ROWS,
    protobuf::ROWS,
    fix::ROWS,
    mqtt::ROWS,
    map::ROWS,
    table::ROWS,
];

/// The row of a name.
pub(crate) fn find(name: &str) -> Option<&'static Converter> {
    rows().find(|row| row.name == name)
}

/// All rows.
pub(crate) fn rows() -> impl Iterator<Item = &'static Converter> {
    TABLES.iter().flat_map(|table| table.iter())
}
