//! Third-party programs, run to their end with a bound on their time.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Seconds after which a program is ended; far more than any takes.
const SECONDS_MAX: u32 = 60;

/// A command line.
pub struct Tool {
    words: Vec<OsString>,
    input: Vec<u8>,
    seconds_max: u32,
}

/// A program that runs, until it is told by the end of its standard input to come to an end.
pub struct Running {
    child: Child,
    stdin: ChildStdin,
    name: String,
}

/// What a program left behind.
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Tool {
    pub fn new(program: &str, words: &[&str]) -> Tool {
        let mut tool = Tool { words: vec![program.into()], input: Vec::new(), seconds_max: SECONDS_MAX };
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

    /// It may take so long, and not only as long as other programs.
    pub fn within(&mut self, seconds: u32) -> &mut Tool {
        self.seconds_max = seconds;
        self
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn run(&self) -> Said {
        let Running { child, mut stdin, name } = self.start();
        let input = self.input.clone();
        // A program that has ended reads no more; and one that is told much says much meanwhile.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let said = said(child, &name);
        let _ = writer.join();
        said
    }

    /// Starts it with an open standard input.
    #[track_caller]
    pub fn start(&self) -> Running {
        let mut command = Command::new("timeout");
        command.arg(self.seconds_max.to_string()).args(&self.words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("timeout is part of every Linux");
        let stdin = child.stdin.take().expect("it is piped");
        Running { child, stdin, name: format!("{:?}", self.words[0]) }
    }
}

impl Running {
    /// Ends its standard input, and waits for its end.
    #[track_caller]
    pub fn finish(self) -> Said {
        drop(self.stdin);
        said(self.child, &self.name)
    }
}

#[track_caller]
fn said(child: Child, name: &str) -> Said {
    let output = child.wait_with_output().expect("it is our child");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let said = Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
    assert_ne!(said.code, Some(127), "{name} is not installed, see scripts/setup: {said:?}");
    assert_ne!(said.code, Some(124), "{name} did not end in time: {said:?}");
    said
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
