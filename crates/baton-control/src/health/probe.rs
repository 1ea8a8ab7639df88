//! One check: connect, speak, judge.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use baton_kernel::Endpoint;
use baton_kernel::connect::{self, ConnectStep};
use baton_model::Address;
use baton_proxy::dialer;
use baton_tls::{Failure, Refusal, Target, is_wrong_name, rustls};
use socket2::{Domain, SockRef};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::expect::Answer;
use super::patience::{Exhausted, Patience};
use super::plan::{Connection, Exchange, Plan, Tls};
use super::proxy_header;
use super::{Report, Status};

/// The most of an answer that is read (`tune.bufsize`).
const ANSWER_MAX: usize = 16 * 1024;

/// Where the next check begins to look for a free port in a `source` with a range of ports.
static NEXT_PORT: AtomicU64 = AtomicU64::new(0);
/// How far from there the one after that begins: far, so that a full part of the range is left behind.
const PORTS_APART: u64 = 0x9e37;

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// Runs a check. Never longer than its timeouts, our own delays aside.
pub(super) async fn probe(plan: &Plan) -> Report {
    let started = Instant::now();
    let mut report = Report::new(Status::L4Connection);
    let mut patience = Patience::new(plan.connect);
    for connection in &plan.connections {
        // Each connection has its own time, unless there is one for the whole check.
        if plan.read.is_some() {
            patience = Patience::new(plan.connect);
        }
        report = connect_and_speak(plan, connection, &mut patience).await;
        if report.status.verdict() == super::fsm::Verdict::Failed {
            break;
        }
    }
    report.duration = Some(started.elapsed());
    report
}

async fn connect_and_speak(plan: &Plan, connection: &Connection, patience: &mut Patience) -> Report {
    let Some(address) = &plan.address else { return Report::new(Status::L4Connection).info("no address") };
    let opened = patience.wait(connect(plan, address, connection.port)).await;
    let (mut stream, ends) = match opened {
        Err(Exhausted) => return Report::new(Status::L4Timeout),
        Ok(Err(why)) => return Report::new(Status::L4Connection).info(why),
        Ok(Ok(opened)) => opened,
    };
    let header = proxy_header::header(connection.send_proxy, ends);
    if !header.is_empty() {
        match patience.wait(stream.write_all(&header)).await {
            Err(Exhausted) => return Report::new(Status::L4Timeout),
            Ok(Err(error)) => return Report::new(Status::L4Connection).info(words(&error)),
            Ok(Ok(())) => {}
        }
    }
    if let Some(tls) = &connection.tls {
        stream = match patience.wait(agree(tls, stream)).await {
            Err(Exhausted) => return Report::new(Status::L6Timeout),
            Ok(Err(why)) => return Report::new(Status::L6Response).info(why),
            Ok(Ok(stream)) => stream,
        };
    }
    let mut reading = plan.read.map(Patience::new);
    let patience = reading.as_mut().unwrap_or(patience);
    let mut report = Report::new(if connection.tls.is_some() { Status::L6Ok } else { Status::L4Ok });
    for exchange in &connection.exchanges {
        report = match patience.wait(speak(plan, stream.as_mut(), exchange)).await {
            Err(Exhausted) => Report::new(Status::L7Timeout),
            Ok(report) => report,
        };
        if report.status.verdict() == super::fsm::Verdict::Failed {
            break;
        }
    }
    report
}

async fn speak(plan: &Plan, stream: &mut dyn Stream, exchange: &Exchange) -> Report {
    if let Err(error) = stream.write_all(&exchange.request).await {
        return Report::new(Status::L7Response).info(words(&error));
    }
    let needs_body = exchange.expects.iter().flatten().any(|expect| expect.needs_body()) && !exchange.is_head;
    let mut bytes = Vec::new();
    if let Err(error) = read_answer(stream, &mut bytes, needs_body).await
        && bytes.is_empty()
    {
        return Report::new(Status::L7Response).info(words(&error));
    }
    let Some(answer) = Answer::parse(&bytes) else { return Report::new(Status::L7Response) };
    let result = |status| Report { code: Some(answer.code), ..Report::new(status).info(answer.reason) };
    if plan.disable_on_404 && answer.code == 404 {
        return result(Status::L7Conditional);
    }
    for expect in &exchange.expects {
        let report = match expect {
            Ok(expect) => expect.judge(&answer),
            Err(why) => Some(Report::new(Status::L7Response).info(why.as_str())),
        };
        if let Some(report) = report {
            return report;
        }
    }
    result(Status::L7Ok)
}

/// Reads until the answer can be judged, the server closes, or the buffer is full.
async fn read_answer(stream: &mut dyn Stream, bytes: &mut Vec<u8>, needs_body: bool) -> io::Result<()> {
    loop {
        if let Some(answer) = Answer::parse(bytes) {
            let complete = answer.length().is_some_and(|length| answer.body.len() >= length);
            if !needs_body || complete {
                return Ok(());
            }
        }
        let mut part = [0; 4096];
        let room = part.len().min(ANSWER_MAX - bytes.len());
        match stream.read(&mut part[..room]).await? {
            0 => return Ok(()),
            count => bytes.extend_from_slice(&part[..count]),
        }
    }
}

/// The handshake, or why there is none, as HAProxy says it and with the reason behind.
async fn agree(tls: &Tls, stream: Box<dyn Stream>) -> Result<Box<dyn Stream>, String> {
    let wrong_name = || {
        let which = if tls.name.is_some() { "expected" } else { "configured" };
        format!("Server presented an SSL certificate different from the {which} one")
    };
    let Target { config, name, .. } = tls.connector.target(tls.name.as_deref()).map_err(|_| wrong_name())?;
    match TlsConnector::from(config).connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error) if is_wrong_name(error) => wrong_name(),
            Some(error) => format!("SSL handshake failure ({})", Failure::of(error, Refusal::take(error))),
            None => format!("SSL handshake failure ({})", words(&error)),
        }),
    }
}

/// The two ends of a TCP connection: ours, theirs.
type Ends = Option<(SocketAddr, SocketAddr)>;

/// Connects as traffic does ([`Dialer`](baton_proxy::dialer::Dialer)).
async fn connect(plan: &Plan, address: &Address, port: Option<u16>) -> Result<(Box<dyn Stream>, Ends), String> {
    let mut peer = dialer::endpoint(address).ok_or("a descriptor cannot be checked")?;
    if let (Endpoint::Inet(inet), Some(port)) = (&mut peer, port) {
        inet.set_port(port);
    }
    let started = plan.dialer.start(&peer, NEXT_PORT.fetch_add(PORTS_APART, Ordering::Relaxed)).map_err(|error| {
        match error.step {
            ConnectStep::Connect => words(&error.source),
            ConnectStep::Socket | ConnectStep::Option(_) | ConnectStep::Source => words_of(&error.to_string()),
        }
    })?;
    established(started.into_fd()).await.map_err(|error| words(&error))
}

async fn established(fd: OwnedFd) -> io::Result<(Box<dyn Stream>, Ends)> {
    let is_unix = SockRef::from(&fd).domain()? == Domain::UNIX;
    if is_unix {
        return Ok((Box::new(UnixStream::from_std(fd.into())?), None));
    }
    let stream = TcpStream::from_std(fd.into())?;
    // Closing resets, so that checks leave no TIME_WAIT behind; a failure only costs such an entry.
    let _ = stream.set_zero_linger();
    let finished = || match connect::finished(&stream)? {
        true => Ok(()),
        false => Err(io::ErrorKind::WouldBlock.into()),
    };
    stream.async_io(Interest::WRITABLE, finished).await?;
    let ends = stream.local_addr().and_then(|from| Ok((from, stream.peer_addr()?))).ok();
    Ok((Box::new(stream), ends))
}

/// The system's words for an error, without Rust's addition of the number.
fn words(error: &io::Error) -> String {
    words_of(&error.to_string())
}

fn words_of(text: &str) -> String {
    text.split(" (os error").next().unwrap_or(text).to_string()
}
