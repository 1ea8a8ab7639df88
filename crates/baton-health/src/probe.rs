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

use crate::expect::Judgement;
use crate::health::Verdict;
use crate::patience::{Exhausted, Patience};
use crate::plan::{Connection, Exchange, Plan, Tls};
use crate::proxy_header;
use crate::response::Response;
use crate::{Report, Status};

/// Where the next check begins to look for a free port in a `source` with a range of ports.
static NEXT_PORT: AtomicU64 = AtomicU64::new(0);
/// How far from there the one after that begins: far, so that a full part of the range is left behind.
const PORTS_APART: u64 = 0x9e37;

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// Runs a check. Never longer than its timeouts, our own delays aside.
pub(crate) async fn probe(plan: &Plan) -> Report {
    let started = Instant::now();
    let mut report = Report::new(Status::L4Connection);
    let mut patience = Patience::new(plan.connect);
    for connection in &plan.connections {
        // Each connection has its own time, unless there is one for the whole check.
        if plan.read.is_some() {
            patience = Patience::new(plan.connect);
        }
        report = connect_and_speak(plan, connection, &mut patience).await;
        if report.status.verdict() == Verdict::Failed {
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
        if report.status.verdict() == Verdict::Failed {
            break;
        }
    }
    report
}

async fn speak(plan: &Plan, stream: &mut dyn Stream, exchange: &Exchange) -> Report {
    if let Err(error) = stream.write_all(&exchange.request).await {
        return Report::new(Status::L7Response).info(words(&error));
    }
    let mut response = Response::new(exchange.to);
    loop {
        if let Some(report) = judge(plan, exchange, &response, response.is_complete()) {
            return report;
        }
        let mut part = [0; 4096];
        let room = part.len().min(response.room());
        match stream.read(&mut part[..room]).await {
            Err(error) if response.is_empty() => return Report::new(Status::L7Response).info(words(&error)),
            // The server has closed, or there is no room for more.
            Err(_) | Ok(0) => {
                return judge(plan, exchange, &response, true).unwrap_or(Report::new(Status::L7Response));
            }
            Ok(count) => {
                if response.push(&part[..count]).is_err() {
                    return Report::new(Status::L7Response);
                }
            }
        }
    }
}

/// What comes of a response, if what is there of it decides.
fn judge(plan: &Plan, exchange: &Exchange, response: &Response, is_over: bool) -> Option<Report> {
    let head = response.head()?;
    let passed = |status| Some(Report { code: Some(head.status), ..Report::new(status) });
    if plan.disable_on_404 && head.status == 404 {
        return passed(Status::L7Conditional);
    }
    for expect in &exchange.expects {
        match expect.as_ref().map(|expect| expect.judge(head, response.content(), is_over)) {
            Ok(Judgement::Met) => {}
            Ok(Judgement::Pending) => return None,
            Ok(Judgement::Failed(report)) => return Some(report),
            Err(why) => return Some(Report::new(Status::L7Response).info(why.as_str())),
        }
    }
    passed(Status::L7Ok)
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
