//! From bytes to commands. Pure: bytes go in, lines come out, and a line is split into commands and their words.
//!
//! A line ends with `\n`; `;` stands between commands, blanks between words, and `\` takes the meaning from the character
//! behind it. When a line ends with `<<`, the lines after it up to an empty one are the last command's payload (management
//! guide, 9.3). Everything a peer can make long has a bound.

/// The most commands on one line.
pub const COMMANDS_MAX: usize = 1024;

/// What announces a payload.
const PAYLOAD: &[u8] = b"<<";

/// Bytes of a peer that are not a whole line yet.
#[derive(Debug)]
pub struct Input {
    bytes: Vec<u8>,
    /// The most bytes of a line together with its payload.
    limit: usize,
    /// A line that waits for the rest of its payload.
    open: Option<Line>,
}

/// A line, and the payload of its last command.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Line {
    /// Its bytes, without the end and without `<<`.
    pub text: Vec<u8>,
    /// The lines up to the empty one, each with its end.
    pub payload: Option<Vec<u8>>,
}

/// What the bytes so far amount to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// More bytes are needed.
    Wait,
    /// A line is whole.
    Line(Line),
    /// A line of a payload was taken; there is more to come.
    Payload,
    /// The line is longer than it may be: nothing more can be understood.
    TooLong,
}

impl Input {
    /// Nothing yet. `limit` is the most bytes of a line with its payload.
    pub fn new(limit: usize) -> Input {
        Input { bytes: Vec::new(), limit, open: None }
    }

    /// Takes bytes of the peer.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether nothing waits to be looked at.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.open.is_none()
    }

    /// What there is. To be asked again until it waits.
    pub fn step(&mut self) -> Step {
        let held = self.open.as_ref().map_or(0, |line| line.text.len() + line.payload.as_ref().map_or(0, Vec::len));
        let end = self.bytes.iter().position(|byte| *byte == b'\n');
        if held + end.unwrap_or(self.bytes.len()) >= self.limit {
            return Step::TooLong;
        }
        let Some(end) = end else { return Step::Wait };
        let mut text: Vec<u8> = self.bytes.drain(..=end).collect();
        text.pop();
        if text.last() == Some(&b'\r') {
            text.pop();
        }
        let Some(mut line) = self.open.take() else { return self.begin(text) };
        if text.is_empty() {
            return Step::Line(line);
        }
        let payload = line.payload.get_or_insert_default();
        payload.extend_from_slice(&text);
        payload.push(b'\n');
        self.open = Some(line);
        Step::Payload
    }

    fn begin(&mut self, mut text: Vec<u8>) -> Step {
        let Some(before) = text.strip_suffix(PAYLOAD) else { return Step::Line(Line { text, payload: None }) };
        // Glued to a word it is a part of that; a payload follows all the same.
        if before.last().is_none_or(|last| is_blank(*last)) {
            text.truncate(before.len());
        }
        self.open = Some(Line { text, payload: Some(Vec::new()) });
        Step::Payload
    }
}

/// The commands of a line, each as its words; what is no UTF-8 is replaced. No more than [`COMMANDS_MAX`]: `None` when there
/// are more.
pub fn commands(text: &[u8]) -> Option<Vec<Vec<String>>> {
    let mut all = Vec::new();
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b';' => {
                words.extend(word.take());
                all.push(std::mem::take(&mut words));
                if all.len() >= COMMANDS_MAX {
                    return None;
                }
            }
            byte if is_blank(byte) => words.extend(word.take()),
            // At the end of the line there is nothing to take the meaning from.
            b'\\' => word.get_or_insert_default().push(*bytes.next().unwrap_or(&b'\\')),
            byte => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    all.push(words);
    let text = |word: Vec<u8>| String::from_utf8_lossy(&word).into_owned();
    Some(all.into_iter().map(|words| words.into_iter().map(text).collect()).collect())
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands as `word|word;word`.
    fn check(text: &str, expect: &str) {
        let commands = commands(text.as_bytes()).expect("few commands");
        let shown: Vec<String> = commands.iter().map(|words| words.join("|")).collect();
        assert_eq!(shown.join(";"), expect, "{text}");
    }

    #[test]
    fn lines_become_commands_and_words() {
        check("show version", "show|version");
        check("  show \t version  ", "show|version");
        check("show version; show info ;", "show|version;show|info;");
        check("a ; ; b", "a;;b");
        check("", "");
        check(";", ";");
        check(r"a\;b c\ d e\\f \", r"a;b|c d|e\f|\");
    }

    #[test]
    fn commands_have_a_bound() {
        assert_eq!(commands(";".repeat(COMMANDS_MAX - 1).as_bytes()).map(|all| all.len()), Some(COMMANDS_MAX));
        assert_eq!(commands(";".repeat(COMMANDS_MAX).as_bytes()), None);
    }

    #[test]
    fn bytes_become_lines() {
        let mut input = Input::new(100);
        let line = |text: &str, payload: Option<&str>| {
            Step::Line(Line { text: text.into(), payload: payload.map(|payload| payload.as_bytes().to_vec()) })
        };
        input.push(b"show ver");
        assert_eq!(input.step(), Step::Wait);
        input.push(b"sion\r\nnext\nadd <<\na 1\nb 2\n\nlast<<\n\n");
        assert_eq!(input.step(), line("show version", None));
        assert_eq!(input.step(), line("next", None));
        assert_eq!([input.step(), input.step(), input.step()], [Step::Payload, Step::Payload, Step::Payload]);
        assert_eq!(input.step(), line("add ", Some("a 1\nb 2\n")));
        assert_eq!([input.step(), input.step()], [Step::Payload, line("last<<", Some(""))], "a part of the word");
        assert!(input.is_empty() && input.step() == Step::Wait);
        input.push(b"<<\n\n");
        assert_eq!([input.step(), input.step()], [Step::Payload, line("", Some(""))]);
    }

    #[test]
    fn lines_and_payloads_have_a_bound() {
        let check = |text: &str, expect: Step| {
            let mut input = Input::new(10);
            input.push(text.as_bytes());
            let mut step = input.step();
            while matches!(step, Step::Payload | Step::Line(_)) {
                step = input.step();
            }
            assert_eq!(step, expect, "{text}");
        };
        check("123456789", Step::Wait);
        check("1234567890", Step::TooLong);
        check("1234567890\n", Step::TooLong);
        check("123456789\n123456789\n", Step::Wait);
        check("a <<\n1\n2\n", Step::Wait);
        check("a <<\n1\n2\n3\n4567", Step::TooLong);
    }
}
