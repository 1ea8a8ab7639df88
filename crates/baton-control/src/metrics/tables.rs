//! Stick tables in a scrape.

use super::exposition::PIECE_BYTES;
use super::parts::Part;
use super::text;
use crate::control::Control;

/// A metric of each table: its name, its help, and its value.
type TableMetric = (&'static str, &'static str, fn(&TableValues) -> u64);

const METRICS: [TableMetric; 2] = [
    ("size", "Most entries of a stick table.", |table| table.size),
    ("used", "Entries of a stick table now.", |table| table.used),
];

/// A table as it was when it was read.
#[derive(Debug)]
pub struct TableValues {
    /// Its labels, as they are written.
    labels: [Box<str>; 2],
    size: u64,
    used: u64,
}

impl TableValues {
    /// Those of all tables, the last one of the configuration first, as in HAProxy.
    pub fn read(control: &Control) -> Vec<TableValues> {
        let tables = &control.line.registry().tables;
        let names: Vec<_> = control.line.model().tables().map(|table| &table.name).collect();
        let found = names.into_iter().rev().filter_map(|name| tables.get(name));
        found
            .map(|table| TableValues {
                labels: [("name", &**table.name()), ("type", table.key_type().word())].map(|(label, value)| {
                    let mut written = String::new();
                    text::label_text(&mut written, label, value);
                    written.into()
                }),
                size: table.size(),
                used: table.used(),
            })
            .collect()
    }
}

/// Writes what fits of all tables, from that metric and that table on; whether that was all.
pub fn write(tables: &[TableValues], (metric, table): (&mut usize, &mut usize), out: &mut String) -> bool {
    let prefix = Part::Tables.prefix();
    while let Some((name, help, value)) = METRICS.get(*metric).filter(|_| !tables.is_empty()) {
        while let Some(of) = tables.get(*table) {
            if out.len() >= PIECE_BYTES {
                return false;
            }
            if *table == 0 {
                text::head(out, prefix, name, help, "gauge");
            }
            text::series(out, prefix, name, &[&of.labels[0], &of.labels[1]], value(of) as f64, false);
            *table += 1;
        }
        (*metric, *table) = (*metric + 1, 0);
    }
    true
}
