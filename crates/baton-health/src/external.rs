//! `option external-check`: a program decides whether a server is well, by its exit status. It is killed when it takes too long. The
//! thread goes on meanwhile.

use std::process::Stdio;

use baton_model::{Address, ExternalCheck, Proxy, Server, ServerTarget};
use tokio::process::Command;
use tokio::time::Instant;

use crate::live::CheckSubject;
use crate::patience::{Exhausted, Patience};
use crate::{Report, Status};

/// A program, and what it is told.
#[derive(Debug)]
pub(crate) struct External {
    program: String,
    arguments: [String; 4],
    environment: Vec<(&'static str, String)>,
}

/// What stands for an address that does not exist.
const NOT_USED: &str = "NOT_USED";

impl External {
    /// As the manual describes it (4.2, `external-check command`): nothing else of the environment is passed on.
    pub(crate) fn new(check: &ExternalCheck, proxy: &Proxy, server: &Server) -> External {
        let address = match &server.address.target {
            ServerTarget::Fixed(address) => Some(address.clone()),
            ServerTarget::ClientDestination(inet) => Some(Address::Inet(*inet)),
            ServerTarget::Unresolved { .. } => None,
        };
        let (server_address, server_port) = address.as_ref().map_or((None, None), parts);
        let listening = proxy
            .binds
            .iter()
            .map(|bind| &bind.address)
            .find(|address| matches!(address, Address::Inet(_) | Address::Unix(_)));
        let (proxy_address, proxy_port) = listening.map_or((None, None), parts);
        let or = |text: &Option<String>, instead: &str| text.clone().unwrap_or_else(|| instead.to_owned());
        let port = server_port.filter(|port| port != "0");
        External {
            program: check.command.clone(),
            arguments: [
                or(&proxy_address, NOT_USED),
                or(&proxy_port, NOT_USED),
                or(&server_address, ""),
                or(&port, NOT_USED),
            ],
            environment: vec![
                ("PATH", check.path.clone().unwrap_or_default()),
                ("HAPROXY_PROXY_NAME", proxy.name.to_string()),
                ("HAPROXY_PROXY_ID", proxy.id.to_string()),
                ("HAPROXY_PROXY_ADDR", or(&proxy_address, "")),
                ("HAPROXY_PROXY_PORT", or(&proxy_port, "")),
                ("HAPROXY_SERVER_NAME", server.name.to_string()),
                ("HAPROXY_SERVER_ID", server.id.to_string()),
                ("HAPROXY_SERVER_ADDR", or(&server_address, "")),
                ("HAPROXY_SERVER_PORT", or(&port, "")),
                ("HAPROXY_SERVER_MAXCONN", server.maxconn.to_string()),
                ("HAPROXY_SERVER_SSL", u8::from(server.tls.is_some()).to_string()),
                ("HAPROXY_SERVER_PROTO", if proxy.mode == baton_model::Mode::Http { "h1" } else { "tcp" }.to_owned()),
            ],
        }
    }

    /// Runs the program, for as long as there is patience.
    pub(crate) async fn run(&self, subject: &CheckSubject<'_>, mut patience: Patience) -> Report {
        let started = Instant::now();
        let mut command = Command::new(self.program());
        command
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("HAPROXY_SERVER_CURCONN", subject.server.served().to_string())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let mut report = match command.spawn() {
            // As HAProxy has it: the process that should have become the program ends by this.
            Err(error) => Report { code: Some(255), ..Report::new(Status::ProgramError) }.info(told(&error)),
            Ok(mut child) => match patience.wait(child.wait()).await {
                Err(Exhausted) => {
                    // It is killed now, and waited for later by the runtime.
                    let _ = child.start_kill();
                    Report { code: Some(0), ..Report::new(Status::ProgramTimeout) }
                }
                Ok(Err(error)) => Report::new(Status::ProgramError).info(told(&error)),
                Ok(Ok(status)) => {
                    let code = status.code().and_then(|code| u16::try_from(code).ok());
                    let status = if status.success() { Status::ProgramOk } else { Status::ProgramError };
                    Report { code, ..Report::new(status) }
                }
            },
        };
        report.duration = Some(started.elapsed());
        report
    }

    /// The program in the directories of its own `PATH`: ours is another one.
    fn program(&self) -> std::path::PathBuf {
        let path = self.environment.iter().find(|(name, _)| *name == "PATH").map_or("", |(_, path)| path);
        if self.program.contains('/') {
            return (&self.program).into();
        }
        let found = path.split(':').map(|folder| std::path::Path::new(folder).join(&self.program));
        found.into_iter().find(|file| file.is_file()).unwrap_or_else(|| (&self.program).into())
    }
}

/// The system's words, without Rust's addition of the number.
fn told(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Address and port as texts; a unix socket has no port.
fn parts(address: &Address) -> (Option<String>, Option<String>) {
    match address {
        Address::Inet(inet) => (Some(inet.ip().to_string()), Some(inet.port().to_string())),
        Address::Unix(path) => (Some(path.display().to_string()), None),
        Address::Abstract(_) | Address::Fd(_) => (None, None),
    }
}
