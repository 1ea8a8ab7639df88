//! `show stat` as a table.

use std::collections::BTreeMap;

/// Rows by proxy and service, cells by column.
pub type Table = BTreeMap<(String, String), BTreeMap<String, String>>;

/// Reads the CSV of `show stat`; no test has a comma in a cell.
#[track_caller]
pub fn table(text: &str) -> Table {
    let mut lines = text.lines().filter(|line| !line.is_empty());
    let header = lines.next().and_then(|line| line.strip_prefix("# ")).unwrap_or_else(|| panic!("no header: {text}"));
    let columns: Vec<&str> = header.split(',').collect();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), columns.len(), "{line}");
        let row: BTreeMap<_, _> =
            columns.iter().zip(&cells).map(|(column, cell)| ((*column).to_owned(), (*cell).to_owned())).collect();
        ((cells[0].to_owned(), cells[1].to_owned()), row)
    };
    lines.map(row).collect()
}

/// One cell.
#[track_caller]
pub fn cell<'t>(table: &'t Table, proxy: &str, service: &str, column: &str) -> &'t str {
    let row = table.get(&(proxy.to_owned(), service.to_owned()));
    row.and_then(|row| row.get(column)).unwrap_or_else(|| panic!("no {proxy}/{service} {column}"))
}
