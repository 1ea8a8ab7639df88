//! What an agent's line says (configuration manual, 5.2 `agent-check`): pure. The line is read as HAProxy reads it, malformed ones too.

const STATIC: &str = "Backend is using a static LB algorithm and only accepts weights '0%' and '100%'.";

/// An answer of an agent: what it says of each thing, the last time it says it. `None`: nothing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct AgentResponse {
    pub(crate) mode: Option<AgentMode>,
    /// In percent of the configured weight.
    pub(crate) weight_percent: Option<u32>,
    pub(crate) maxconn: Option<u32>,
    /// Whether the server is up.
    pub(crate) is_up: Option<bool>,
    /// What statistics and logs say of it.
    pub(crate) info: String,
}

/// In which mode the server is to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AgentMode {
    Ready,
    Drain,
    Maint,
}

/// The first line of what an agent has sent; `None`: its end has not come yet.
pub(crate) fn first_line(received: &[u8]) -> Option<&[u8]> {
    let end = received.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0))?;
    (received[end] != 0).then(|| &received[..end])
}

impl AgentResponse {
    /// What a line says. With `is_static`, the backend's algorithm takes no weights but none and the whole.
    pub(crate) fn read(line: &[u8], is_static: bool) -> AgentResponse {
        let mut response = AgentResponse::default();
        let (mut state, mut unknown, mut description) = (None, None, "".into());
        // What is wrong with a weight comes before what is wrong with a limit.
        let (mut weight_problem, mut limit_problem) = (None, None);
        let mut rest = line;
        while let Some(start) = rest.iter().position(|byte| !is_space(*byte)) {
            rest = &rest[start..];
            if let [b'#', text @ ..] = rest {
                let start = text.iter().position(|byte| !is_space(*byte)).unwrap_or(text.len());
                description = String::from_utf8_lossy(&text[start..]);
                break;
            }
            let end = rest.iter().position(|byte| is_space(*byte)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            let word = String::from_utf8_lossy(word);
            match &*word.to_ascii_lowercase() {
                "up" => (response.is_up, state) = (Some(true), Some(word)),
                "down" | "fail" | "stopped" => (response.is_up, state) = (Some(false), Some(word)),
                "ready" => response.mode = Some(AgentMode::Ready),
                "drain" => response.mode = Some(AgentMode::Drain),
                "maint" => response.mode = Some(AgentMode::Maint),
                other if other.starts_with(|first: char| first.is_ascii_digit()) && other.contains('%') => {
                    match percent(other) {
                        Some(percent) if is_static && !matches!(percent, 0 | 100) => {
                            weight_problem = Some(STATIC);
                        }
                        Some(percent) => response.weight_percent = Some(percent),
                        None => weight_problem = Some("Trailing garbage in weight string"),
                    }
                }
                other => match other.strip_prefix("maxconn:") {
                    Some(text) => match limit(text) {
                        Ok(limit) => response.maxconn = Some(limit),
                        Err(reason) => limit_problem = Some(reason),
                    },
                    None => unknown = unknown.or(Some(word)),
                },
            }
        }
        response.info = match (state, unknown, weight_problem.or(limit_problem)) {
            (Some(state), unknown, problem) => {
                // What does not fit comes before what describes it.
                match unknown.as_deref().or(problem).unwrap_or(&description) {
                    "" => format!("via agent : {state}"),
                    said => format!("via agent : {state} ({said})"),
                }
            }
            (None, Some(unknown), _) => format!("agent reports an error : {unknown}"),
            (None, None, Some(problem)) => format!("agent warns : {problem}"),
            (None, None, None) => String::new(),
        };
        response
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b',')
}

/// A share of a weight: digits and `%`, nothing else.
fn percent(text: &str) -> Option<u32> {
    let digits = text.strip_suffix('%')?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().unwrap_or(u32::MAX))
}

fn limit(text: &str) -> Result<u32, &'static str> {
    match text.parse::<u32>() {
        Ok(limit) => Ok(limit),
        Err(_) if text.is_empty() => Err("Require <maxconn>."),
        Err(_) if text.bytes().all(|byte| byte.is_ascii_digit()) => Err("Value out of range in maxconn string"),
        Err(_) if text.starts_with(|first: char| first.is_ascii_digit()) => Err("Trailing garbage in maxconn string"),
        Err(_) => Err("maxconn string empty or preceded by garbage"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line, and what it says as words: `up`, `down`, the mode, `75%`, `maxconn 7`; then what is said of it.
    fn check(line: &[u8], says: &str, info: &str) {
        let response = AgentResponse::read(line, false);
        let mut words = Vec::new();
        words.extend(response.is_up.map(|up| if up { "up".to_owned() } else { "down".to_owned() }));
        words.extend(response.mode.map(|mode| format!("{mode:?}").to_ascii_lowercase()));
        words.extend(response.weight_percent.map(|percent| format!("{percent}%")));
        words.extend(response.maxconn.map(|limit| format!("maxconn {limit}")));
        assert_eq!((words.join(" ").as_str(), response.info.as_str()), (says, info), "{}", line.escape_ascii());
    }

    #[test]
    fn every_word_is_read() {
        check(b"up", "up", "via agent : up");
        check(b"  UP\t", "up", "via agent : UP");
        check(b"down", "down", "via agent : down");
        check(b"Fail #", "down", "via agent : Fail");
        check(b"stopped # a b,c ", "down", "via agent : stopped (a b,c )");
        check(b"down ##x", "down", "via agent : down (#x)");
        check(b"ready", "ready", "");
        check(b"drain", "drain", "");
        check(b"maint #why", "maint", "");
        check(b"75%", "75%", "");
        check(b"0%", "0%", "");
        check(b"99999999999%", "4294967295%", "");
        check(b"MaxConn:30", "maxconn 30", "");
        check(b"up,50%,maxconn:7 ready", "up ready 50% maxconn 7", "via agent : up");
        check(b"", "", "");
        check(b"# up", "", "");
    }

    #[test]
    fn the_last_word_of_a_kind_counts() {
        check(b"up down", "down", "via agent : down");
        check(b"drain ready 10% 20%", "ready 20%", "");
        check(b"maxconn:1 maxconn:2", "maxconn 2", "");
    }

    #[test]
    fn what_does_not_fit_is_reported_and_the_rest_counts() {
        for word in ["garbage", "-5%", "75", "%", "+50%", "down#busy", "up;down", "failed", "stop", "up50%"] {
            check(word.as_bytes(), "", &format!("agent reports an error : {word}"));
        }
        check(b"g1 g2 #why", "", "agent reports an error : g1");
        check(b"garbage other up", "up", "via agent : up (garbage)");
        check(b"up garbage #why", "up", "via agent : up (garbage)");
        for word in ["75%%", "7x5%", "50%#note", "50%up"] {
            check(word.as_bytes(), "", "agent warns : Trailing garbage in weight string");
        }
        check(b"up 75%% #x", "up", "via agent : up (Trailing garbage in weight string)");
        check(b"garbage 75%%", "", "agent reports an error : garbage");
        check(b"maxconn:", "", "agent warns : Require <maxconn>.");
        check(b"maxconn:x 75%% 3%", "3%", "agent warns : Trailing garbage in weight string");
        check(b"75%% maxconn:x", "", "agent warns : Trailing garbage in weight string");
        check(b"maxconn:7x", "", "agent warns : Trailing garbage in maxconn string");
        check(b"maxconn:-3", "", "agent warns : maxconn string empty or preceded by garbage");
        check(b"maxconn:99999999999", "", "agent warns : Value out of range in maxconn string");
        check(b"g\xff\x01", "", "agent reports an error : g\u{fffd}\u{1}");
    }

    #[test]
    fn a_static_algorithm_takes_no_weights() {
        let response = AgentResponse::read(b"up 50% 0%", true);
        assert_eq!((response.weight_percent, response.info), (Some(0), format!("via agent : up ({STATIC})")));
        assert_eq!(AgentResponse::read(b"100%", true).info, "");
    }

    #[test]
    fn a_line_ends_at_its_end_and_not_with_the_connection() {
        assert_eq!(first_line(b"up\nfail\n"), Some(&b"up"[..]));
        assert_eq!(first_line(b"\r\nup\n"), Some(&b""[..]));
        assert_eq!((first_line(b"up"), first_line(b"up\0x\n"), first_line(b"")), (None, None, None));
    }
}
