//! A text table in aligned columns.

use std::fmt;

/// The space between two columns.
const GAP: &str = "  ";

/// A table; printing it aligns its columns, the first to the left and the others to the right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// The row after which a rule is drawn.
    headed: bool,
}

impl Table {
    /// A table with these column heads.
    pub fn new<S: Into<String>>(heads: impl IntoIterator<Item = S>) -> Table {
        let mut table = Table { rows: Vec::new(), headed: true };
        table.row(heads);
        table
    }

    /// A table without heads.
    pub fn plain() -> Table {
        Table::default()
    }

    /// Adds a row; rows may have different numbers of cells.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) -> &mut Table {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }
}

impl fmt::Display for Table {
    /// Each row as a line, without spaces at its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let fill = " ".repeat(width - cell.chars().count());
                match column {
                    0 => line.extend([cell.as_str(), &fill]),
                    _ => line.extend([GAP, &fill, cell]),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
            if number == 0 && self.headed {
                let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                writeln!(f, "{}", rule.join(GAP))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["load", "requests"]);
        table.row(["keep-alive", "7"]).row(["é", "1234567890", "x"]).row(["only"]);
        let expect = "\
load          requests
----------  ----------  -
keep-alive           7
é           1234567890  x
only
";
        assert_eq!(table.to_string(), expect);
    }
}
