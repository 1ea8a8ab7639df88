//! Which running process a verb is about.

use std::path::PathBuf;

use baton_control::ask::{self, Whom};
use baton_control::protocol::{Reply, Request};
use clap::Args;

/// The choice among running processes; not needed if there is only one.
#[derive(Args, Debug)]
pub struct TargetProcess {
    /// PID of the process, if several run
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// PID file of the process
    #[arg(short = 'p', long, value_name = "FILE", conflicts_with = "pid")]
    pub pid_file: Option<PathBuf>,
}

impl TargetProcess {
    /// Whether one was named.
    pub fn is_named(&self) -> bool {
        self.pid.is_some() || self.pid_file.is_some()
    }

    /// Sends it a request and waits for the reply. A process of another user is reported: its reply may be forged.
    pub fn ask(&self, request: Request) -> Result<Reply, String> {
        let asked = ask::send(self.whom(), request)?;
        if let Some(uid) = asked.stranger() {
            super::say_line(format_args!(
                "Warning: process {} belongs to user {uid}, not to you or root: its reply cannot be trusted.",
                asked.pid()
            ));
        }
        asked.reply()
    }

    fn whom(&self) -> Whom<'_> {
        match (self.pid, &self.pid_file) {
            (Some(pid), _) => Whom::Pid(pid),
            (None, Some(path)) => Whom::PidFile(path),
            (None, None) => Whom::Only,
        }
    }
}
