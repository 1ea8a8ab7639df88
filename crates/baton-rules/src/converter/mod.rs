//! Converters: one row each. To add one, write its function and its row.

mod encode;
mod hash;
mod map;
mod number;
mod text;

pub(crate) use encode::{from_base64, hex_pair};
pub use hash::crc32c;
pub(crate) use hash::{avalanche, sdbm};

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
        Converter { name, args: &[], takes, gives, check: None, eval, map: None, doc }
    }

    const fn args(mut self, args: &'static [Arg]) -> Converter {
        self.args = args;
        self
    }

    const fn check(mut self, check: Check) -> Converter {
        self.check = Some(check);
        self
    }
}

const TABLES: [&[Converter]; 5] = [text::ROWS, encode::ROWS, number::ROWS, hash::ROWS, map::ROWS];

/// The row of a name.
pub(crate) fn find(name: &str) -> Option<&'static Converter> {
    rows().find(|row| row.name == name)
}

/// All rows.
pub(crate) fn rows() -> impl Iterator<Item = &'static Converter> {
    TABLES.iter().flat_map(|table| table.iter())
}
