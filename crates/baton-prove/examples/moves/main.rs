//! How fast thousands of kept connections move to a process that takes over, and what their clients and both processes feel of it.
//!
//! `moves [--connections N] [--times N] PROGRAM`
//!
//! Half of the connections use TLS (1.2 and 1.3 in turn); each has had one request, and gets another one behind the move. Meanwhile a few of
//! them ask again and again; others that the new process has no place for, and that stay, show how long the event loops of the old one were
//! busy; and new connections show those of the new one. Writes one JSON object for each move.

mod clients;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use baton_prove::certificates::{Authority, CertificateSpec};
use baton_prove::{Origin, OriginOptions};
use serde_json::{Value, json};

use crate::clients::{Client, Probes, tls_of};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at how many have come.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Before the move, in which the same is measured.
const QUIET: Duration = Duration::from_secs(2);
/// Connections besides those that are counted, with room for new ones.
const MORE: usize = 100;
/// Threads that open connections.
const OPENERS: usize = 4;

/// Where Baton listens.
#[derive(Clone, Copy, Debug)]
struct Fronts {
    clear: SocketAddr,
    tls: SocketAddr,
    /// Sessions of TCP, which stay, since the new process does not have it.
    staying: SocketAddr,
}

fn main() -> Result<(), Failed> {
    let (mut connections, mut times, mut program) = (10_000_usize, 3_u32, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--connections" => connections = value()?.parse()?,
            "--times" => times = value()?.parse()?,
            _ if word.starts_with('-') => return Err(format!("unknown option {word}").into()),
            _ => program = Some(word),
        }
    }
    let program = program.ok_or("no program")?;
    for _ in 0..times {
        println!("{}", once(&program, connections)?);
    }
    Ok(())
}

/// One process, its connections, and one that takes over.
fn once(program: &str, connections: usize) -> Result<Value, Failed> {
    let folder = tempfile::tempdir()?;
    let issued = Authority::new("moves")?.issue(&CertificateSpec::server(["localhost"]))?;
    let pem = folder.path().join("crt.pem");
    fs::write(&pem, issued.bundle_pem())?;
    let origin = Origin::start(OriginOptions::new("o"))?;
    let fronts = Fronts { clear: free()?, tls: free()?, staying: free()? };
    let text = |staying: &str| {
        format!(
            "global\n nbthread 2\n maxconn {}\ndefaults\n mode http\n timeout connect 5s\n timeout client 300s\n timeout server 300s\n\
             frontend web\n bind {}\n bind {} ssl crt {}\n default_backend app\nbackend app\n server s {}\n{staying}",
            connections + MORE,
            fronts.clear,
            fronts.tls,
            pem.display(),
            origin.address(),
        )
    };
    let staying = format!("listen staying\n mode tcp\n bind {}\n server s {}\n", fronts.staying, origin.address());
    let old = Process::start(program, folder.path(), "old.cfg", &text(&staying), None)?;
    let mut clients = open(fronts, connections)?;
    let probes = Probes::start(fronts)?;
    std::thread::sleep(QUIET);
    let quiet = probes.longest();
    let began = Instant::now();
    let new = Process::start(program, folder.path(), "new.cfg", &text(""), Some(old.pid()))?;
    let serves = began.elapsed();
    let wanted = connections as u64 + Probes::MOVING;
    let (mut first, mut looked) = (None, began);
    let last = loop {
        let arrived = new.arrived().map_err(|error| format!("the status of the new process: {error}"))?;
        let now = Instant::now();
        if arrived > 0 {
            // The first one came since the last look.
            first.get_or_insert(looked);
        }
        if arrived >= wanted {
            break now;
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("only {arrived} of {wanted} connections have come").into());
        }
        looked = now;
        std::thread::sleep(LOOK_EVERY);
    };
    let moved = last.saturating_duration_since(first.unwrap_or(began));
    let moving = probes.longest();
    probes.end()?;
    let mut lost = 0_usize;
    for client in &mut clients {
        lost += usize::from(client.get().is_err());
    }
    let gone = old.ended()?;
    let ms = |time: Duration| (time.as_secs_f64() * 1e4).round() / 10.0;
    let waits =
        |waits: [Duration; 3]| json!({ "client": ms(waits[0]), "old_loop": ms(waits[1]), "new_loop": ms(waits[2]) });
    Ok(json!({
        "connections": connections, "lost": lost, "serves_ms": ms(serves), "moved_ms": ms(moved), "old_ended_well": gone,
        "longest_wait_ms": waits(moving), "longest_wait_quiet_ms": waits(quiet),
    }))
}

fn free() -> Result<SocketAddr, Failed> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Opens the connections, half of them with TLS, and makes one request on each.
fn open(fronts: Fronts, connections: usize) -> Result<Vec<Client>, Failed> {
    let each = connections.div_ceil(OPENERS);
    let opener = |at: usize| {
        let range = at * each..connections.min((at + 1) * each);
        std::thread::spawn(move || -> Result<Vec<Client>, Failed> {
            let tls = tls_of()?;
            range
                .map(|number| {
                    let mut client = Client::connect(fronts, &tls, number)?;
                    client.get()?;
                    Ok(client)
                })
                .collect()
        })
    };
    let openers: Vec<_> = (0..OPENERS).map(opener).collect();
    let mut clients = Vec::with_capacity(connections);
    for opener in openers {
        clients.extend(opener.join().map_err(|_| "a thread has panicked")??);
    }
    Ok(clients)
}

/// A running Baton. It ends with this.
struct Process(Child);

impl Process {
    /// Starts it, and waits until it serves.
    fn start(program: &str, folder: &Path, file: &str, text: &str, before: Option<u32>) -> Result<Process, Failed> {
        let file = folder.join(file);
        fs::write(&file, text)?;
        let mut command = Command::new(program);
        command.arg("-db").arg("-f").arg(file).stdin(Stdio::null()).stderr(Stdio::null());
        if let Some(pid) = before {
            command.arg("-sf").arg(pid.to_string());
        }
        let mut process = Process(command.spawn().map_err(|error| format!("{program}: {error}"))?);
        let end = Instant::now() + PATIENCE;
        while process.arrived().is_err() {
            if let Some(status) = process.0.try_wait()? {
                return Err(format!("{program} ended with {status}").into());
            }
            if Instant::now() > end {
                return Err("it does not serve".into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(process)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// How many connections have come from the process before: `baton status`, by its socket.
    fn arrived(&self) -> Result<u64, Failed> {
        let address = UnixAddress::from_abstract_name(format!("baton-{}", self.pid()))?;
        let mut stream = UnixStream::connect_addr(&address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"{\"baton\":1,\"request\":\"status\"}\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        let reply: Value = serde_json::from_str(&line)?;
        found(&reply, "connections_arrived").ok_or_else(|| format!("no status: {line}").into())
    }

    /// Whether it has ended, well, soon.
    fn ended(mut self) -> Result<bool, Failed> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(false)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A number of this name, wherever it is.
fn found(value: &Value, name: &str) -> Option<u64> {
    let fields = value.as_object()?;
    fields.get(name).and_then(Value::as_u64).or_else(|| fields.values().find_map(|inner| found(inner, name)))
}

/// A connection without Nagle's delays, and a bound on waits.
fn connect(address: SocketAddr) -> Result<TcpStream, Failed> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}
