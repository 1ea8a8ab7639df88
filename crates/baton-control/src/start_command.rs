//! The command line of this process, for the command that starts its successor.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// How this process was started.
#[derive(Clone, Debug, Default)]
pub struct StartCommand {
    /// Where relative names begin; `None` when there are none.
    pub directory: Option<PathBuf>,
    /// The path of the program, where the next version of it is found.
    pub program: PathBuf,
    /// Its arguments, but for those that take over from another process.
    pub arguments: Vec<OsString>,
}

impl StartCommand {
    /// The command, for a shell, that starts the program on disk in place of process `pid`.
    pub fn successor(&self, pid: u32) -> String {
        let directory = self.directory.as_ref().map(|path| format!("cd {} && ", quoted(path.as_os_str())));
        let arguments = self.arguments.iter().map(|argument| format!(" {}", quoted(argument)));
        let program = quoted(self.program.as_os_str());
        // In front: what follows `--` are files.
        format!("{}{program} -sf {pid}{}", directory.unwrap_or_default(), arguments.collect::<String>())
    }
}

/// A word as a shell reads it.
fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:,@%".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_successor_can_be_pasted_into_a_shell() {
        let words = |list: &[&str]| list.iter().map(OsString::from).collect();
        let plain = StartCommand {
            directory: None,
            program: "/usr/sbin/baton".into(),
            arguments: words(&["-D", "-f", "/etc/haproxy.cfg"]),
        };
        assert_eq!(plain.successor(7), "/usr/sbin/baton -sf 7 -D -f /etc/haproxy.cfg");
        let odd = StartCommand {
            directory: Some("/my files".into()),
            program: "/opt/it's/baton".into(),
            arguments: words(&["--", "a b.cfg", ""]),
        };
        assert_eq!(odd.successor(7), "cd '/my files' && '/opt/it'\\''s/baton' -sf 7 -- 'a b.cfg' ''");
    }
}
