//! Where a run takes place: a private directory, addresses, origins, and what the variables stand for.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::Server;
use super::variables::fill;
use crate::certificates::{Authority, CertificateSpec};
use crate::origin::OriginKind;
use crate::{Origin, OriginHandle, OriginOptions};

/// Ports that are tried: below those that the system gives to clients, so that no client is in the way of a server that
/// comes back.
const PORTS: std::ops::Range<u16> = 8000..32_000;
/// How many of them are tried.
const TRIES_MAX: u16 = 2000;
/// Clients come from here too; a server under test listens where its clients are.
const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Files of the private directory that every run has.
const CERTIFICATE: &str = "certificate.pem";
const AUTHORITY: &str = "authority.pem";

/// Where a run takes place. Its directory vanishes with it.
#[derive(Debug)]
pub(crate) struct RunEnvironment {
    directory: TempDir,
    web: SocketAddr,
    second: SocketAddr,
    tls: SocketAddr,
    authority: Authority,
    origins: [OriginHandle; 2],
    /// Sends back every byte.
    echo: OriginHandle,
    baton: PathBuf,
    start: String,
}

impl RunEnvironment {
    /// Makes it, writes the server's files and starts two origins.
    ///
    /// # Errors
    /// A sentence: what could not be had.
    pub(crate) fn new(server: &Server, baton: &Path) -> Result<RunEnvironment, String> {
        let directory = tempfile::Builder::new()
            .prefix("baton-prove-")
            .tempdir()
            .map_err(|error| format!("cannot create a private directory: {error}"))?;
        // A server that gives up its rights must still reach its files.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).map_err(|error| error.to_string())?;
        let mut ports = free_ports();
        let mut port = || ports.next().ok_or("no free port was found");
        let origin = |name: &str, kind| {
            let grace = Duration::from_secs(1);
            Origin::start(OriginOptions { grace, kind, ..OriginOptions::new(name) }).map_err(|error| error.to_string())
        };
        let mut place = RunEnvironment {
            directory,
            web: port()?,
            second: port()?,
            tls: port()?,
            authority: Authority::new("baton prove").map_err(|error| error.to_string())?,
            origins: [origin("one", OriginKind::Http)?, origin("two", OriginKind::Http)?],
            echo: origin("echo", OriginKind::TcpEcho)?,
            baton: baton.to_owned(),
            start: String::new(),
        };
        place.start = place.fill(&server.start);
        place.certify().map_err(|error| format!("cannot create a certificate: {error}"))?;
        for (name, text) in &server.files {
            let text = place.fill(text);
            place.write(name, &text).map_err(|error| format!("{name} : {error}"))?;
        }
        Ok(place)
    }

    /// A certificate for the address and for `web.example`, and the one of its authority, which clients trust.
    fn certify(&self) -> io::Result<()> {
        let wanted = CertificateSpec::server(["web.example", &self.web.ip().to_string()]);
        self.write(CERTIFICATE, &self.authority.issue(&wanted)?.bundle_pem())?;
        self.write(AUTHORITY, &self.authority.root_pem())
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        std::fs::write(self.directory.path().join(name), text)
    }

    /// The server's address.
    pub(crate) fn web(&self) -> SocketAddr {
        self.web
    }

    /// The server's second address.
    pub(crate) fn second(&self) -> SocketAddr {
        self.second
    }

    /// The server's address for TLS with many certificates.
    pub(crate) fn tls(&self) -> SocketAddr {
        self.tls
    }

    /// The authority of the run's certificates.
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The file of that authority's certificate.
    pub(crate) fn authority_file(&self) -> PathBuf {
        self.directory.path().join(AUTHORITY)
    }

    /// The private directory.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A text with its variables filled in, but for the number of an event.
    pub(crate) fn fill(&self, text: &str) -> String {
        let [one, two] = &self.origins;
        fill(text, &|name| {
            Some(match name {
                "web" => self.web.to_string(),
                "port" => self.web.port().to_string(),
                "port2" => self.second.port().to_string(),
                "tls" => self.tls.to_string(),
                "origin" => one.address().to_string(),
                "origin2" => two.address().to_string(),
                "echo" => self.echo.address().to_string(),
                "dir" => self.directory.path().display().to_string(),
                "baton" => self.baton.display().to_string(),
                "start" => self.start.clone(),
                "certificate" => self.directory.path().join(CERTIFICATE).display().to_string(),
                "authority" => self.authority_file().display().to_string(),
                _ => return None,
            })
        })
    }

    /// The text of an event with all of its variables filled in.
    pub(crate) fn fill_event(&self, text: &str, number: usize) -> String {
        fill(&self.fill(text), &|name| (name == "n").then(|| number.to_string()))
    }

    /// Everything that is run, as commands that somebody can type, in their order.
    pub(crate) fn commands(&self, every: Option<Duration>, server: &Server, load: &str) -> Vec<String> {
        let directory = self.directory.path().display();
        let mut commands = vec![format!("mkdir -p {directory} && cd {directory}")];
        for (name, text) in &server.files {
            let text = self.fill(text);
            let end = if text.ends_with('\n') { "" } else { "\n" };
            commands.push(format!("cat >'{name}' <<'END'\n{text}{end}END"));
        }
        let [one, two] = &self.origins;
        let echo = self.echo.address();
        commands.push(format!("baton origin one={} two={} &", one.address(), two.address()));
        if server.files.values().any(|text| text.contains("{{echo}}")) {
            commands.push(format!("baton origin --tcp echo={echo} &"));
        }
        let fixed = [server.prepare.as_deref().unwrap_or_default(), &server.start];
        commands.extend(fixed.into_iter().filter(|command| !command.is_empty()).map(|command| self.fill(command)));
        commands.extend(server.operate.as_deref().map(|command| self.fill(command)));
        commands.push(format!("baton load {load} &"));
        if let (Some(event), Some(every)) = (&server.event, every) {
            commands.push(format!("# every {every:?}:\n{}", self.fill(event)));
        }
        commands.extend(server.stop.as_deref().map(|command| self.fill(command)));
        commands
    }

    /// Stops the origins.
    pub(crate) async fn leave(self) {
        let [one, two] = self.origins;
        let _ = tokio::join!(one.stop(), two.stop(), self.echo.stop());
    }
}

/// Ports that could be listened on a moment ago, each once. They start somewhere else in each process, so that several
/// that look at the same time do not find the same.
fn free_ports() -> impl Iterator<Item = SocketAddr> {
    let count = PORTS.end - PORTS.start;
    let first = (std::process::id() % u32::from(count)) as u16;
    (0..TRIES_MAX)
        .map(move |step| SocketAddr::from((HOST, PORTS.start + (first + step * 7) % count)))
        .filter(|address| TcpListener::bind(address).is_ok())
}

/// Which of these programs is not installed.
pub(crate) fn missing(programs: &[String], search: &std::ffi::OsStr) -> Option<String> {
    let is_there = |program: &String| {
        let mut places = std::env::split_paths(search).map(|directory| directory.join(program));
        places.any(|path| nix::unistd::access(&path, nix::unistd::AccessFlags::X_OK).is_ok() && path.is_file())
    };
    programs.iter().find(|program| !is_there(program)).cloned()
}
