//! Clients that keep their connections, and those that measure how long they wait.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use baton_prove::stream::AnyServer;
use rustls::crypto::aws_lc_rs;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::{Failed, Fronts, connect};

const REQUEST: &[u8] = b"GET /bytes/100 HTTP/1.1\r\nhost: a\r\n\r\n";
/// What measures.
const KINDS: [&str; 3] = ["a connection that moves", "a session that stays", "a new connection"];
/// Between two requests of one that measures.
const PAUSE: Duration = Duration::from_millis(1);

/// Settings for TLS 1.2 and 1.3.
pub type TlsOfBoth = [Arc<ClientConfig>; 2];

pub fn tls_of() -> Result<TlsOfBoth, Failed> {
    let of = |version| -> Result<Arc<ClientConfig>, Failed> {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_protocol_versions(&[version])?;
        let builder = builder.dangerous().with_custom_certificate_verifier(AnyServer::new());
        Ok(Arc::new(builder.with_no_client_auth()))
    };
    Ok([of(&TLS12)?, of(&TLS13)?])
}

/// A connection that is kept.
pub enum Client {
    Clear(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Client {
    /// Every other one has TLS, in both versions in turn.
    pub fn connect(fronts: Fronts, tls: &TlsOfBoth, number: usize) -> Result<Client, Failed> {
        if number.is_multiple_of(2) {
            return Ok(Client::Clear(connect(fronts.clear)?));
        }
        let config = tls[number / 2 % 2].clone();
        let connection = ClientConnection::new(config, "localhost".try_into()?)?;
        Ok(Client::Tls(Box::new(StreamOwned::new(connection, connect(fronts.tls)?))))
    }

    /// A request and its response.
    pub fn get(&mut self) -> Result<(), Failed> {
        match self {
            Client::Clear(stream) => get(stream),
            Client::Tls(stream) => get(&mut **stream),
        }
    }
}

fn get(stream: &mut (impl Read + Write)) -> Result<(), Failed> {
    stream.write_all(REQUEST)?;
    let (mut room, mut count) = ([0; 4096], 0);
    loop {
        let more = stream.read(&mut room[count..])?;
        count += more;
        let text = &room[..count];
        if more == 0 {
            return Err(format!("closed behind {:?}", String::from_utf8_lossy(text)).into());
        }
        if let Some(head) = text.windows(4).position(|four| four == b"\r\n\r\n")
            && count >= head + 4 + 100
        {
            let is_kept = text.starts_with(b"HTTP/1.1 200") && !text[..head].windows(5).any(|five| five == b"close");
            return if is_kept { Ok(()) } else { Err("no response that keeps the connection".into()) };
        }
    }
}

/// Threads that ask again and again, and note their longest waits: of connections that move, of some that stay, and of new ones.
pub struct Probes {
    is_over: Arc<AtomicBool>,
    longest: Arc<[AtomicU64; 3]>,
    threads: Vec<JoinHandle<Result<(), Failed>>>,
}

impl Probes {
    /// Connections that move, among them.
    pub const MOVING: u64 = 4;
    /// Connections that stay: so many that each thread has one.
    const STAYING: u64 = 4;

    pub fn start(fronts: Fronts) -> Result<Probes, Failed> {
        let mut probes = Probes { is_over: Arc::default(), longest: Arc::default(), threads: Vec::new() };
        let tls = tls_of()?;
        for number in 0..Probes::MOVING {
            let mut client = Client::connect(fronts, &tls, number as usize)?;
            probes.spawn(0, move || client.get());
        }
        for _ in 0..Probes::STAYING {
            let mut client = Client::Clear(connect(fronts.staying)?);
            probes.spawn(1, move || client.get());
        }
        probes.spawn(2, move || Client::Clear(connect(fronts.clear)?).get());
        Ok(probes)
    }

    fn spawn(&mut self, kind: usize, mut ask: impl FnMut() -> Result<(), Failed> + Send + 'static) {
        let (is_over, longest) = (self.is_over.clone(), self.longest.clone());
        self.threads.push(std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                ask().map_err(|error| format!("{}: {error}", KINDS[kind]))?;
                longest[kind].fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
            Ok(())
        }));
    }

    /// The longest waits since this was asked before.
    pub fn longest(&self) -> [Duration; 3] {
        std::array::from_fn(|kind| Duration::from_micros(self.longest[kind].swap(0, Ordering::Relaxed)))
    }

    /// Ends them: whether each was answered to its end.
    pub fn end(self) -> Result<(), Failed> {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| "a thread has panicked")??;
        }
        Ok(())
    }
}
