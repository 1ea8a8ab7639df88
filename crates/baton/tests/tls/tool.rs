//! Programs of other people, run to their end with a bound on their time.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Write;
use std::process::{Command, Stdio};

/// Seconds after which a program is ended; far more than any takes.
const SECONDS_MAX: &str = "60";

/// A command line.
pub struct Tool {
    words: Vec<OsString>,
    input: Vec<u8>,
}

/// What a program left behind.
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Tool {
    pub fn new(program: &str, words: &[&str]) -> Tool {
        let mut tool = Tool { words: vec![program.into()], input: Vec::new() };
        tool.words(words);
        tool
    }

    pub fn word(&mut self, word: impl AsRef<OsStr>) -> &mut Tool {
        self.words.push(word.as_ref().to_owned());
        self
    }

    pub fn words(&mut self, words: &[&str]) -> &mut Tool {
        self.words.extend(words.iter().map(OsString::from));
        self
    }

    /// What it reads from its standard input; nothing otherwise.
    pub fn input(&mut self, text: impl Into<Vec<u8>>) -> &mut Tool {
        self.input = text.into();
        self
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn run(&self) -> Said {
        let mut command = Command::new("timeout");
        command.arg(SECONDS_MAX).args(&self.words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("timeout is part of every Linux");
        let mut stdin = child.stdin.take().expect("it is piped");
        let input = self.input.clone();
        // A program that has ended reads no more; and one that is told much says much meanwhile.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().expect("it is our child");
        let _ = writer.join();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let said = Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
        assert_ne!(said.code, Some(127), "{:?} is not installed, see scripts/setup: {said:?}", self.words[0]);
        assert_ne!(said.code, Some(124), "{:?} did not end in {SECONDS_MAX} s: {said:?}", self.words);
        said
    }
}

impl Said {
    /// Everything it said.
    pub fn all(&self) -> String {
        format!("{}\n{}", self.out, self.err)
    }

    /// It ended well and said all of these.
    #[track_caller]
    pub fn says(&self, texts: &[&str]) {
        assert_eq!(self.code, Some(0), "{self:?}");
        for text in texts {
            assert!(self.all().contains(text), "{text:?} is not in {self:?}");
        }
    }
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {:?}\n{}\n{}", self.code, self.out, self.err)
    }
}
