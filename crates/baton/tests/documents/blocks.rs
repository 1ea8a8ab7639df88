//! The code blocks of a Markdown document, and what a test does with each. Text in, steps out.
//!
//! A block says by its language what it is. `sh` and `console` are run, `haproxy` is checked by `baton -c`, others are text. Comments
//! of their own lines, which no reader of the page sees, say what else is to be done:
//!
//! | comment | means |
//! |---|---|
//! | `not run: REASON` | the next block is left out, for this reason |
//! | `test: COMMANDS` | commands that are run here besides: what the prose asks the reader to do or to see |
//! | `file: PATH` | the next block is written to this file |
//! | `exit: N` | the next block ends with this status |
//! | `ready: COMMAND` | the last command of the next block keeps running; it serves once this command succeeds |
//! | `stopped` | each line of the next block keeps running: once it has printed something, SIGTERM ends it, with 0 |
//! | `output` | the next block is what the commands before it print |
//! | `machine: systemd` | systemd is the first process of the machine, in the whole document |
//! | `part of: SECTION` | the next block of `haproxy` stands below this line |
//!
//! What stands between `measured: begin` and `measured: end` was written by a program and is left out. The commands of `test` and `ready`
//! may use what `functions.sh` has.
//!
//! In a `console` block lines that begin with `$ ` are commands, and what follows them is what they print.

/// What a test does, in the order of the document.
#[derive(Debug, PartialEq)]
pub struct Step {
    /// The line of the document, from 1.
    pub line: usize,
    pub action: Action,
}

#[derive(Debug, PartialEq)]
pub enum Action {
    /// Commands of a shell that end with this status.
    Run {
        commands: String,
        status: u8,
    },
    /// Commands of which the last one keeps running, and one that succeeds once it serves.
    Start {
        commands: String,
        ready: String,
    },
    /// A command that keeps running until SIGTERM.
    Stop {
        command: String,
    },
    /// What the commands before must have printed.
    Expect {
        text: String,
    },
    Write {
        path: String,
        text: String,
    },
    /// A configuration that must be valid.
    Check {
        config: String,
    },
}

/// What a comment says about the block below it.
#[derive(Debug, Default)]
struct Marks {
    line: usize,
    not_run: bool,
    output: bool,
    stopped: bool,
    file: Option<String>,
    status: Option<u8>,
    ready: Option<String>,
    part_of: Option<String>,
}

/// Languages of blocks that are neither commands nor configurations of Baton.
const TEXT: [&str; 6] = ["text", "ini", "json", "toml", "python", "yaml"];

/// The steps of a document, or all that is wrong with it, each with its line.
pub fn steps(document: &str) -> Result<Vec<Step>, Vec<String>> {
    let mut reader = Reader { lines: document.lines().collect(), ..Reader::default() };
    while reader.at < reader.lines.len() {
        reader.next();
    }
    reader.no_marks_left();
    if reader.errors.is_empty() { Ok(reader.steps) } else { Err(reader.errors) }
}

#[derive(Default)]
struct Reader<'a> {
    lines: Vec<&'a str>,
    at: usize,
    marks: Option<Marks>,
    in_list: bool,
    after_text: bool,
    steps: Vec<Step>,
    errors: Vec<String>,
}

impl Reader<'_> {
    fn next(&mut self) {
        let line = self.lines[self.at];
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if text.starts_with("```") {
            self.block(indent);
        } else if text == "<!-- measured: begin -->" {
            self.measured();
        } else if text.starts_with("<!--") {
            self.comment();
        } else if text.is_empty() {
            self.after_text = false;
            self.at += 1;
        } else if !self.after_text && indent >= if self.in_list { 6 } else { 4 } {
            self.error(self.at, "an indented block does not say what it is: fence it, with a language");
            while self.lines.get(self.at).is_some_and(|line| line.trim().is_empty() || line.starts_with("    ")) {
                self.at += 1;
            }
        } else {
            self.no_marks_left();
            if indent == 0 {
                self.in_list = text.starts_with("- ") || text.split_once(". ").is_some_and(|(n, _)| is_number(n));
            }
            self.after_text = true;
            self.at += 1;
        }
    }

    /// A fenced block, from its first line on.
    fn block(&mut self, indent: usize) {
        let start = self.at;
        let language = self.lines[start].trim().trim_start_matches('`').to_owned();
        let rest = &self.lines[start + 1..];
        let length = rest.iter().position(|line| line.trim() == "```");
        let Some(length) = length else {
            self.error(start, "the block has no end");
            self.at = self.lines.len();
            return;
        };
        // A block in a list is indented as a whole.
        let inside = |line: &&str| line.get(indent..).unwrap_or_default().to_owned() + "\n";
        let text: String = rest[..length].iter().map(inside).collect();
        self.at = start + length + 2;
        self.after_text = false;
        let marks = self.marks.take().unwrap_or_default();
        if let Err(wrong) = self.add(start, &language, text, marks) {
            self.error(start, wrong);
        }
    }

    fn add(&mut self, start: usize, language: &str, text: String, marks: Marks) -> Result<(), &'static str> {
        let run = matches!(language, "sh" | "console");
        let known = run || language == "haproxy" || TEXT.contains(&language);
        if !known {
            return Err("the block has no language, or none that the test knows");
        }
        if (marks.status.is_some() || marks.ready.is_some() || marks.stopped) && language != "sh" {
            return Err("`exit`, `ready` and `stopped` are about a block of `sh`");
        }
        if marks.output && language != "text" {
            return Err("`output` is about a block of `text`");
        }
        if marks.part_of.is_some() && language != "haproxy" {
            return Err("`part of` is about a block of `haproxy`");
        }
        if marks.not_run {
            return Ok(());
        }
        let line = start + 1;
        let mut push = |line, action| self.steps.push(Step { line, action });
        if let Some(path) = marks.file {
            push(line, Action::Write { path, text: text.clone() });
            if run {
                return Ok(());
            }
        }
        match language {
            "sh" if marks.stopped => {
                for (index, command) in text.lines().enumerate() {
                    push(line + 1 + index, Action::Stop { command: command.to_owned() });
                }
            }
            "sh" => match marks.ready {
                Some(ready) => push(line, Action::Start { commands: text, ready }),
                None => push(line, Action::Run { commands: text, status: marks.status.unwrap_or(0) }),
            },
            "console" => conversation(line, &text, push)?,
            "haproxy" => {
                let above = marks.part_of.map(|section| section + "\n").unwrap_or_default();
                push(line, Action::Check { config: above + &text });
            }
            _ if marks.output => push(line, Action::Expect { text }),
            _ => {}
        }
        Ok(())
    }

    /// What a program has written.
    fn measured(&mut self) {
        self.no_marks_left();
        let rest = &self.lines[self.at..];
        match rest.iter().position(|line| line.trim() == "<!-- measured: end -->") {
            Some(length) => self.at += length + 1,
            None => {
                self.error(self.at, "what was measured has no end");
                self.at = self.lines.len();
            }
        }
    }

    /// A comment, which may have several lines.
    fn comment(&mut self) {
        let start = self.at;
        let length = self.lines[start..].iter().position(|line| line.trim_end().ends_with("-->"));
        let Some(length) = length else {
            self.error(start, "the comment has no end");
            self.at = self.lines.len();
            return;
        };
        self.at = start + length + 1;
        self.after_text = false;
        let text = self.lines[start..self.at].join("\n");
        let text = text.trim().trim_start_matches("<!--").trim_end_matches("-->").trim();
        let (name, value) = text.split_once(':').map_or((text, ""), |(name, value)| (name, value.trim()));
        if name == "test" {
            let action = Action::Run { commands: value.to_owned() + "\n", status: 0 };
            self.steps.push(Step { line: start + 1, action });
            return;
        }
        let mut marks = self.marks.take().unwrap_or(Marks { line: start, ..Marks::default() });
        let value = value.to_owned();
        let whole = match name {
            "not run" => {
                marks.not_run = true;
                !value.is_empty()
            }
            "output" => {
                marks.output = true;
                value.is_empty()
            }
            "stopped" => {
                marks.stopped = true;
                value.is_empty()
            }
            "exit" => {
                marks.status = value.parse().ok();
                marks.status.is_some()
            }
            "file" => !marks.file.insert(value).is_empty(),
            "ready" => !marks.ready.insert(value).is_empty(),
            "part of" => !marks.part_of.insert(value).is_empty(),
            // Another program's comment.
            _ => {
                self.marks = Some(marks).filter(|marks| marks.line != start);
                return;
            }
        };
        if !whole {
            self.error(start, "the comment lacks what belongs behind the colon, or has too much");
        }
        self.marks = Some(marks);
    }

    /// A mark stands directly above its block.
    fn no_marks_left(&mut self) {
        if let Some(marks) = self.marks.take() {
            self.error(marks.line, "no block follows this comment");
        }
    }

    fn error(&mut self, line: usize, text: &str) {
        self.errors.push(format!("line {}: {text}", line + 1));
    }
}

/// The commands of a `console` block, each with what it prints.
fn conversation(start: usize, text: &str, mut push: impl FnMut(usize, Action)) -> Result<(), &'static str> {
    let lines: Vec<&str> = text.lines().collect();
    if !lines.first().is_some_and(|line| line.starts_with("$ ")) {
        return Err("a block of `console` begins with a command, behind `$ `");
    }
    let mut at = 0;
    while at < lines.len() {
        let end =
            lines[at + 1..].iter().position(|line| line.starts_with("$ ")).map_or(lines.len(), |next| at + 1 + next);
        push(start + at + 1, Action::Run { commands: lines[at][2..].to_owned() + "\n", status: 0 });
        if at + 1 < end {
            push(start + at + 2, Action::Expect { text: lines[at + 1..end].join("\n") + "\n" });
        }
        at = end;
    }
    Ok(())
}

/// The lines of `expected` that `printed` does not have in this order.
///
/// Numbers, with their units, times and the width of tables may be others; `…` stands for anything.
pub fn missing<'a>(expected: &'a str, printed: &str) -> Vec<&'a str> {
    let mut printed = printed.lines().map(normal);
    let mut missing = Vec::new();
    for line in expected.lines().filter(|line| !line.trim().is_empty()) {
        let wanted = normal(line);
        let rest = printed.clone();
        if !printed.any(|line| fits(&wanted, &line)) {
            missing.push(line);
            printed = rest;
        }
    }
    missing
}

/// Whether a line is as wanted, where `…` in what is wanted stands for anything.
fn fits(wanted: &str, line: &str) -> bool {
    let Some((before, after)) = wanted.split_once('…') else { return wanted == line };
    let Some(rest) = line.strip_prefix(before) else { return false };
    after.is_empty() || (0..=rest.len()).any(|at| rest.get(at..).is_some_and(|rest| fits(after, rest)))
}

/// A line without what differs from run to run: each number is `0`, blanks and rules of tables are one character wide.
fn normal(line: &str) -> String {
    let mut normal = String::new();
    for word in line.split_whitespace() {
        if UNITS.contains(&word) && normal.ends_with('0') {
            continue;
        }
        if !normal.is_empty() {
            normal.push(' ');
        }
        let mut last = ' ';
        for character in word.chars() {
            let number = |c: char| c.is_ascii_digit();
            let character = if number(character) { '0' } else { character };
            let again = matches!(character, '0' | '-') && character == last;
            // The point of a decimal number, and the commas of a large one.
            let inside = matches!(character, '.' | ',') && last == '0';
            if !again && !inside {
                normal.push(character);
                last = character;
            }
        }
    }
    normal
}

/// Units, one of which may stand where a document shows another one.
const UNITS: [&str; 9] = ["ns", "us", "ms", "s", "KiB", "MiB", "GiB", "KB", "MB"];

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(document: &str, expected: &[(usize, Action)]) {
        let steps = steps(document).expect("a document without errors");
        let steps: Vec<_> = steps.into_iter().map(|step| (step.line, step.action)).collect();
        assert_eq!(steps, expected);
    }

    #[track_caller]
    fn check_refused(document: &str, expected: &str) {
        let errors = steps(document).expect_err("an error");
        assert!(errors.len() == 1 && errors[0].starts_with(expected), "{errors:?}");
    }

    fn run(commands: &str) -> Action {
        Action::Run { commands: commands.to_owned(), status: 0 }
    }

    fn expect(text: &str) -> Action {
        Action::Expect { text: text.to_owned() }
    }

    #[test]
    fn commands_are_run_and_text_is_not() {
        check("Do:\n\n```sh\na\nb\n```\n\n```text\nc\n```\n", &[(3, run("a\nb\n"))]);
        check("- In a list:\n  ```sh\n  a\n    b\n  ```\n", &[(2, run("a\n  b\n"))]);
        let failing = Action::Run { commands: "a\n".into(), status: 3 };
        check("<!-- exit: 3 -->\n```sh\na\n```\n", &[(2, failing)]);
        let start = Action::Start { commands: "a\n".into(), ready: "b: c".into() };
        check("<!-- ready: b: c -->\n\n```sh\na\n```\n", &[(3, start)]);
        let stop = |command: &str| Action::Stop { command: command.to_owned() };
        check("<!-- stopped -->\n```sh\na\nb\n```\n", &[(3, stop("a")), (4, stop("b"))]);
        check("<!-- test: a\nb -->\nText.\n", &[(1, run("a\nb\n"))]);
        check("<!-- another comment: x -->\nText.\n", &[]);
    }

    #[test]
    fn a_conversation_has_commands_and_what_they_print() {
        let document = "```console\n$ a\n$ b\nc\n$d\n```\n";
        check(document, &[(2, run("a\n")), (3, run("b\n")), (4, expect("c\n$d\n"))]);
        check("```sh\na\n```\n<!-- output -->\n```text\nb\n```\n", &[(1, run("a\n")), (5, expect("b\n"))]);
        check_refused("```console\na\n```\n", "line 1: a block of `console`");
    }

    #[test]
    fn a_configuration_is_checked_and_may_be_a_part_or_a_file() {
        let config = |config: &str| Action::Check { config: config.to_owned() };
        check("```haproxy\na\n```\n", &[(1, config("a\n"))]);
        check("<!-- part of: listen x -->\n```haproxy\na\n```\n", &[(2, config("listen x\na\n"))]);
        let write = || Action::Write { path: "x.cfg".into(), text: "a\n".into() };
        check("<!-- file: x.cfg -->\n```haproxy\na\n```\n", &[(2, write()), (2, config("a\n"))]);
        check("<!-- file: x.cfg -->\n```ini\na\n```\n", &[(2, write())]);
        check("<!-- file: x.cfg -->\n```sh\na\n```\n", &[(2, write())]);
    }

    #[test]
    fn what_is_left_out_has_a_reason() {
        check("<!-- not run: it takes an hour -->\n```sh\na\n```\n", &[]);
        check_refused("<!-- not run: -->\n```sh\na\n```\n", "line 1: the comment lacks");
        check_refused("<!-- not run -->\n```sh\na\n```\n", "line 1: the comment lacks");
        check_refused("<!-- exit: no -->\n```sh\na\n```\n", "line 1: the comment lacks");
    }

    #[test]
    fn no_block_escapes() {
        check_refused("```\na\n```\n", "line 1: the block has no language");
        check_refused("```shell\na\n```\n", "line 1: the block has no language");
        check_refused("Do:\n\n    a\n\n    b\n\nText.\n", "line 3: an indented block");
        check_refused("- Do:\n\n      a\n", "line 3: an indented block");
        check_refused("```sh\na\n", "line 1: the block has no end");
        check_refused("<!-- not run: x\n", "line 1: the comment has no end");
        check_refused("<!-- not run: x -->\nText.\n\n```sh\na\n```\n", "line 1: no block follows");
        check_refused("<!-- not run: x -->\n", "line 1: no block follows");
        check_refused("<!-- output -->\n```sh\na\n```\n", "line 2: `output` is about");
        check_refused("<!-- ready: x -->\n```text\na\n```\n", "line 2: `exit`, `ready` and");
        check_refused("<!-- part of: x -->\n```ini\na\n```\n", "line 2: `part of` is about");
        check_refused("<!-- measured: begin -->\n\n    a\n", "line 1: what was measured");
        check("<!-- measured: begin -->\n\n    a\n\n<!-- measured: end -->\n", &[]);
        check("Text\n    that goes on.\n\n- An item.\n\n  Its second part.\n", &[]);
    }

    #[test]
    fn output_is_compared_but_for_its_numbers() {
        let printed = "  requests   16,204\nlongest 4.20 ms\n------  ----\nkeep-alive: pid 77, 3 s\nend\n";
        for same in ["requests 7", "longest 812 us\n---- -", "keep-alive: pid 1, …\nend", "…pid…", "requests 1\nend\n"]
        {
            assert!(missing(same, printed).is_empty(), "{same}: {:?}", missing(same, printed));
        }
        assert_eq!(missing("end\nrequests 1\n", printed), ["requests 1"]);
        assert_eq!(missing("requests none\nlongest 1 MB\n", printed), ["requests none"]);
        assert_eq!(missing("shortest 4.20 ms\n", printed), ["shortest 4.20 ms"]);
        assert_eq!(missing("keep-alive: … tid …\n", printed), ["keep-alive: … tid …"]);
    }
}
