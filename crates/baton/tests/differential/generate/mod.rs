//! Generated cases: a list of expressions and many inputs, evaluated by both programs in a few requests. The seed is the case's name, so that
//! a failure comes again.
//!
//! ```text
//! --- expressions
//! ,lower                          a converter behind the input as text
//! bin,hex                         a converter behind the input as bytes
//! ,field(<index>,<delimiters>) x5 five of them, each with other values for the words in angle brackets (`arguments.rs`)
//! req.ver                         a whole expression, for fetches
//! --- inputs text x200            200 requests, each with one input of that kind (`inputs.rs`)
//! --- inputs requests x200        200 requests of all forms (`requests.rs`)
//! ```
//!
//! The expressions become one `http-request return` at the end of the configuration, which is one frontend unless there is a section `cfg`. The
//! response has a line for each: its text, then the value as bytes in hexadecimal and as text, each with a dot behind, which is absent
//! where there is no value. The input is the header `v`, in Base64.

mod arguments;
mod inputs;
mod messages;
mod random;
mod requests;

use crate::script::Step;
use random::Random;

/// The configuration of a case that has none.
pub const CFG: &str = "global
    nbthread 1
defaults
    mode http
    timeout connect 4s
    timeout client 4s
    timeout server 4s
frontend f
    bind ${L1}
";

/// Requests on one connection.
const REQUESTS_MAX: usize = 200;

/// Requests that are sent at once.
const BATCH: usize = 50;

/// The rule that evaluates the expressions of a section.
pub fn rule(case: &str, body: &str) -> Result<String, String> {
    let mut random = Random::new(case, "expressions");
    let mut text = String::from("%[req.hdr(v)]'\\n'");
    for line in body.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (template, times) = match line.rsplit_once(" x").map(|(template, times)| (template, times.parse())) {
            Some((template, Ok(times))) => (template.trim_end(), times),
            _ => (line, 1),
        };
        let mut made: Vec<String> = Vec::new();
        for _ in 0..times {
            let expression = arguments::fill(template, &mut random)?;
            if made.contains(&expression) {
                continue;
            }
            let whole = match (expression.strip_prefix(','), expression.strip_prefix("bin,")) {
                (Some(converters), _) => format!("req.hdr(v),b64dec,concat(),{converters}"),
                (None, Some(converters)) => format!("req.hdr(v),b64dec,{converters}"),
                (None, None) => expression.clone(),
            };
            text.push_str(&format!("{}  %[{whole},hex,concat(.)] %[{whole},concat(.)]'\\n'", shown(&expression)));
            made.push(expression);
        }
    }
    Ok(format!("    http-request return status 200 content-type text/plain lf-string '{text}'\n"))
}

/// An expression as text of a format: what would begin another one is left out, and the folder.
fn shown(expression: &str) -> String {
    expression.replace("${DIR}/", "").replace(['%', '\\', '\''], "")
}

/// The steps of a section `inputs`; connections are named after `start`.
pub fn requests(case: &str, kind: &str, count: usize, start: usize) -> Result<Vec<(String, Step)>, String> {
    let mut random = Random::new(case, kind);
    let mut made = Vec::new();
    for number in 0..count {
        made.push(match kind {
            "requests" => requests::any(&mut random),
            kind => carrying(&inputs::one(kind, number, &mut random)?),
        });
    }
    let mut steps = Vec::new();
    for (number, requests) in made.chunks(REQUESTS_MAX).enumerate() {
        let name = format!("g{}", start + number);
        steps.push((name.clone(), Step::connect("L1", None)));
        for batch in requests.chunks(BATCH) {
            steps.push((name.clone(), Step::Send(batch.concat())));
            steps.push((name.clone(), Step::Expect(batch.len())));
        }
    }
    Ok(steps)
}

/// A request that carries an input.
fn carrying(input: &[u8]) -> Vec<u8> {
    use base64::Engine;
    let input = base64::engine::general_purpose::STANDARD.encode(input);
    format!("GET / HTTP/1.1\r\nHost: example.com\r\nV: {input}\r\n\r\n").into_bytes()
}
