//! `show stat domain resolvers`: a line for each name server, and how often what came of its queries.

use std::fmt::Write as _;

use crate::control::Control;
use crate::operators::answer::CommandResponse;
use crate::runtime::field::{Form, Format, Value, csv};

/// The columns: names, and what `desc` says of them. The first two are texts, the others counters of [`baton_dns`], in its order.
const COLUMNS: [(&str, &str); 17] = [
    ("id", "The name server"),
    ("pid", "Its resolvers section"),
    ("sent", "Queries sent"),
    ("send_error", "Queries that could not be sent"),
    ("valid", "Valid responses"),
    ("update", "Responses that changed a server"),
    ("cname", "Responses with an alias"),
    ("cname_error", "Responses with invalid aliases"),
    ("any_err", "Empty responses"),
    ("nx", "Names that do not exist"),
    ("timeout", "Queries without a response in time"),
    ("refused", "Queries refused"),
    ("other", "Other error responses"),
    ("invalid", "Malformed responses"),
    ("too_big", "Responses longer than accepted"),
    ("truncated", "Truncated responses"),
    ("outdated", "Responses after that of another name server"),
];

/// The whole table.
pub(super) fn table(control: &Control, format: Format) -> CommandResponse {
    let mut out = String::new();
    if format.form == Form::Plain {
        out.push_str("# ");
        COLUMNS.iter().for_each(|(name, _)| _ = write!(out, "{name},"));
        out.push('\n');
    }
    let mut lines = Vec::new();
    for (section, counters) in control.line.names().sections() {
        for (server, counters) in section.servers.iter().zip(counters) {
            let texts = [Value::text(&*server.name), Value::text(&*section.name)];
            let counts = counters.named().map(|(_, count)| Value::U64(count));
            lines.push(texts.into_iter().chain(counts).collect::<Vec<_>>());
        }
    }
    match format.form {
        Form::Plain => {
            for line in &lines {
                line.iter().for_each(|value| csv(&mut out, value));
                out.push('\n');
            }
        }
        Form::Typed => {
            for (at, value) in lines.iter().flat_map(|line| line.iter().enumerate()) {
                let (name, doc) = COLUMNS[at];
                let (tag, kind) = if at < 2 { ("CGP", "str") } else { ("MGP", "u64") };
                // Writing to a string cannot fail.
                let _ = write!(out, "N.{at}.{name}:{tag}:{kind}:{value}");
                if format.described {
                    let _ = write!(out, ":\"{doc}\"");
                }
                out.push('\n');
            }
        }
        Form::Json => {
            let field = |(at, value): (usize, &Value)| {
                let (origin, kind) = if at < 2 { ("Config", "str") } else { ("Metric", "u64") };
                let value = match value {
                    Value::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
                    value => value.to_string(),
                };
                format!(
                    "{{\"field\":{{\"pos\":{at},\"name\":\"{}\"}},\"tags\":{{\"origin\":\"{origin}\",\"nature\":\"Gauge\",\
                     \"scope\":\"Process\"}},\"value\":{{\"type\":\"{kind}\",\"value\":{value}}}}}",
                    COLUMNS[at].0
                )
            };
            let line =
                |line: &Vec<Value>| format!("[{}]", line.iter().enumerate().map(field).collect::<Vec<_>>().join(","));
            let _ = writeln!(out, "[{}]", lines.iter().map(line).collect::<Vec<_>>().join(","));
        }
    }
    CommandResponse::Data(out)
}
