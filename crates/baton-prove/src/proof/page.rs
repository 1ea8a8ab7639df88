//! A proof as one HTML file that needs nothing else: no script, no network. It follows the reader's choice of light or dark, and
//! can be printed. It is XML as well, so that a test can read it.

mod row;
mod summary;

use std::fmt::Write;

use crate::proof::{Outcome, Proof, draw::escape, words::plural};

impl Proof {
    /// The report: all rows in one table, then for each measured row its latency over time, its distribution, its failures, and
    /// the exact commands. However much was measured, a row takes less than 100 kB besides its texts.
    pub fn to_html(&self) -> String {
        let mut page = String::with_capacity(16 << 10);
        let title = escape(&self.title);
        let style = include_str!("page/style.css");
        let _ = writeln!(
            page,
            r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>"#
        );
        let _ = writeln!(page, r#"<p class="dim">{}. {}.</p>"#, escape(&self.started), escape(&self.machine.line()));
        if !self.command.is_empty() {
            let _ = writeln!(page, "<pre>{}</pre>", escape(&self.command));
        }
        if let Some(doubt) = self.machine.doubt() {
            let _ = writeln!(page, "<p><b>{doubt}</b></p>");
        }
        if self.interrupted {
            page.push_str("<p class=\"bad\">Interrupted: the figures cover the time until then.</p>\n");
        }
        let _ = writeln!(page, "<p>{}</p>", escape(&self.counted()));
        summary::add(&mut page, self);
        if self.rows.iter().any(|row| row.measured().is_some()) {
            let caption = "The share of failed requests (left), and the longest latency of the completed ones (right). Both \
                axes are logarithmic; a row without a bar on the left has no failed request.";
            let _ = writeln!(page, "<figure>{}<figcaption>{caption}</figcaption></figure>", self.drawing());
        }
        for (number, row) in self.rows.iter().enumerate() {
            row::add(&mut page, row, number);
        }
        self.surroundings(&mut page);
        page.push_str("</main>\n</body>\n</html>\n");
        page
    }

    /// How many rows came to what.
    fn counted(&self) -> String {
        let count = |of: fn(&Outcome) -> bool| self.rows.iter().filter(|row| of(&row.outcome)).count() as u64;
        let measured = plural(count(|outcome| matches!(outcome, Outcome::Measured(_))), "row");
        let absent = count(|outcome| matches!(outcome, Outcome::Absent(_)));
        let broken = count(|outcome| matches!(outcome, Outcome::Broken(_)));
        format!("{measured} measured, {absent} absent, {broken} broken.")
    }

    fn surroundings(&self, page: &mut String) {
        page.push_str("<h2>The machine</h2>\n<table>\n<tbody>\n");
        let machine = &self.machine;
        let mut add = |name: &str, value: &str| {
            if !value.is_empty() {
                let (name, value) = (escape(name), escape(value));
                let _ = writeln!(page, r#"<tr><th scope="row">{name}</th><td class="words">{value}</td></tr>"#);
            }
        };
        add("kernel", &machine.kernel);
        add("processors", &format!("{} {}", machine.cpus, machine.cpu));
        add("memory", &machine.memory.map(|bytes| format!("{} MiB", bytes >> 20)).unwrap_or_default());
        add("load average at the start", &machine.busy.map(|busy| format!("{busy:.2}")).unwrap_or_default());
        for (name, value) in &machine.settings {
            add(name, value);
        }
        page.push_str("</tbody>\n</table>\n");
    }
}

#[cfg(test)]
mod tests;
