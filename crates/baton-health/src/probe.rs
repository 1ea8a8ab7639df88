//! One check: connect, speak, judge. The steps are a script's ([`Script`](crate::script::Script)).

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, ready};
use std::time::SystemTime;

use baton_http::is_only_ours;
use baton_kernel::connect::{self, ConnectError, ConnectStep};
use baton_model::{Address, ProxyProtocol, ServerProtocol, ServerTarget};
use baton_proxy::dialer::{self, Dialer};
use baton_rules::{CheckFacts, CheckVariables, Context, Expr, Format, ProxyName, Sample};
use baton_tls::{Failure, Refusal, Target, is_wrong_name, rustls};
use socket2::{Domain, SockRef};
use tokio::io::{AsyncWriteExt, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::expect::{Expect, Judgement};
use crate::http2::{Failure as Http2Failure, Http2, Http2Request};
use crate::live::{CheckSubject, LiveCheck, random};
use crate::matching::{Finding, NOT_HEX, Standing, from_hex};
use crate::patience::{Exhausted, Patience};
use crate::plan::{Plan, Tls};
use crate::protocol::grpc;
use crate::proxy_header;
use crate::response::{RESPONSE_BYTES_MAX, Response};
use crate::script::{Action, Bytes, Connect, Expectation, Matching, Port, Request, ScriptKind, Step};
use crate::sockets::{CheckSocket, Stream};
use crate::{Report, Status, socks};

/// Where the next check begins to look for a free port in a `source` with a range of ports.
static NEXT_PORT: AtomicU64 = AtomicU64::new(0);
/// How far from there the one after that begins: far, so that a full part of the range is left behind.
const PORTS_APART: u64 = 0x9e37;
/// What is read of a response at a time.
const READ_BYTES: usize = 4096;
/// What `http-check send-state` sends.
const STATE_HEADER: &str = "x-haproxy-server-state";

/// Runs a check. Never longer than its timeouts, our own delays aside.
pub(crate) async fn probe(plan: &Plan, subject: &CheckSubject<'_>) -> Report {
    if let Some(external) = &plan.external {
        return external.run(subject, Patience::new(plan.read.unwrap_or(plan.connect))).await;
    }
    let started = Instant::now();
    let mut dialogue = Dialogue {
        plan,
        scene: Scene { plan, subject, variables: RefCell::default(), ends: None },
        patience: Patience::new(plan.connect),
        stream: None,
        speaks_http2: false,
        is_encrypted: false,
        http2: None,
        is_linger: false,
        outgoing: Vec::new(),
        received: Received::Nothing,
        is_over: false,
    };
    let mut report = dialogue.run().await;
    // Only these say more by a code.
    report.code = match report.status {
        Status::L7Ok | Status::L7Conditional | Status::L7Status => Some(report.code.unwrap_or(0)),
        _ => None,
    };
    report.duration = Some(started.elapsed());
    report
}

/// A check under way.
struct Dialogue<'p> {
    plan: &'p Plan,
    scene: Scene<'p>,
    patience: Patience,
    stream: Option<Box<dyn Stream>>,
    /// HTTP is HTTP/2 on it.
    speaks_http2: bool,
    is_encrypted: bool,
    /// Since the first request over HTTP/2.
    http2: Option<Box<Http2>>,
    /// The connection is closed in order.
    is_linger: bool,
    outgoing: Vec<u8>,
    received: Received,
    /// The server has closed, or there is no room for more.
    is_over: bool,
}

/// What has come since something was sent last.
enum Received {
    Nothing,
    Raw(Vec<u8>),
    Http(Box<Response>),
}

impl Received {
    fn raw(&self) -> &[u8] {
        match self {
            Received::Raw(bytes) => bytes,
            Received::Nothing | Received::Http(_) => &[],
        }
    }

    /// More has come.
    fn take(&mut self, part: &[u8]) -> Stepped {
        match self {
            Received::Nothing => *self = Received::Raw(part.to_vec()),
            Received::Raw(bytes) => bytes.extend_from_slice(part),
            Received::Http(response) => {
                response.push(part).map_err(|_| Report::new(Status::L7Response))?;
            }
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        match self {
            Received::Nothing => true,
            Received::Raw(bytes) => bytes.is_empty(),
            Received::Http(response) => response.is_empty(),
        }
    }
}

/// What a step leads to: an end of the check, or the next step.
type Stepped = Result<(), Report>;

impl Dialogue<'_> {
    async fn run(&mut self) -> Report {
        let script = Arc::clone(&self.plan.script);
        let mut passed = None;
        for step in &script.steps {
            let stepped = match &step.action {
                Action::Connect(connect) => self.connect(step, connect).await,
                Action::Send(bytes) => self.send(bytes),
                Action::Request(request) => self.request(request),
                Action::Expect(expectation) => match self.expect(step, expectation).await {
                    Ok(report) => {
                        passed = Some(report);
                        Ok(())
                    }
                    Err(report) => Err(report),
                },
                Action::Set(assignment) => {
                    self.scene.with(&mut self.received, |cx| assignment.run(cx));
                    Ok(())
                }
                Action::Unset(name) => {
                    self.scene.with(&mut self.received, |cx| cx.variables.unset(name));
                    Ok(())
                }
                Action::Broken(reason) => Err(Report::new(Status::L7Response).info(reason.as_str())),
            };
            if let Err(report) = stepped {
                return report;
            }
        }
        if let Some(step) = script.steps.last()
            && let Err(report) = self.flush(step).await
        {
            return report;
        }
        self.close().await;
        let passed = passed.unwrap_or_else(|| {
            let is_encrypted = self.plan.connections.last().is_some_and(|connection| connection.tls.is_some());
            Report::new(match (script.only_connects(), is_encrypted) {
                (false, _) => Status::L7Ok,
                (true, true) => Status::L6Ok,
                (true, false) => Status::L4Ok,
            })
        });
        let says_kind = script.kind == ScriptKind::Tcp && script.steps.iter().any(|step| step.number.is_some());
        if says_kind && passed.info.is_empty() { passed.info("(tcp-check)") } else { passed }
    }

    async fn connect(&mut self, step: &Step, connect: &Connect) -> Stepped {
        self.flush(step).await?;
        self.close().await;
        // Each connection has its own time, unless there is one for the whole check.
        if self.plan.read.is_some() {
            self.patience = Patience::new(self.plan.connect);
        }
        let fail = |status, why: &str| Err(self.scene.failed(step, status, why));
        let Some(connection) = self.plan.connections.get(connect.index) else {
            return fail(Status::L4Connection, "no connection");
        };
        let Some(mut address) = connect.address().or(self.plan.address.as_ref()).cloned() else {
            return fail(Status::L4Connection, "no address");
        };
        if let Address::Inet(inet) = &mut address {
            let computed = match &connect.port {
                Some(Port::Number(port)) => Some(*port),
                Some(Port::Expression(expr)) => self.scene.number(&mut self.received, expr),
                None => None,
            };
            let usual = match &self.plan.address {
                Some(Address::Inet(usual)) => usual.port(),
                _ => 0,
            };
            inet.set_port(computed.filter(|port| *port > 0).unwrap_or(match inet.port() {
                0 => usual,
                port => port,
            }));
        }
        (self.received, self.is_over, self.is_linger) = (Received::Nothing, false, connect.settings.linger);
        let first = connection.socks4.map(Address::Inet);
        let first = first.as_ref().unwrap_or(&address);
        let speaks = !connect.listens_first
            || connection.socks4.is_some()
            || connection.send_proxy.is_on()
            || connection.tls.is_some();
        let names_ends = connection.send_proxy.version() == ProxyProtocol::V1 || self.plan.script.evaluates;
        let opened = match self.shared_socket(first, speaks) {
            Some(Ok(socket)) => self.patience.wait(shared(socket, names_ends)).await,
            Some(Err(error)) => Ok(Err(unstarted(&error))),
            None => self.patience.wait(open(&self.plan.dialer, first, self.is_linger)).await,
        };
        let (mut stream, ends) = match opened {
            Err(Exhausted) => return Err(self.scene.failed(step, Status::L4Timeout, "")),
            Ok(Err(why)) => return Err(self.scene.failed(step, Status::L4Connection, &why)),
            Ok(Ok(opened)) => opened,
        };
        self.scene.ends = ends;
        if connection.socks4.is_some()
            && let Err((status, why)) = socks::introduce(&mut *stream, &address, &mut self.patience).await
        {
            return Err(self.scene.failed(step, status, why));
        }
        let header = proxy_header::header(connection.send_proxy, ends);
        if !header.is_empty() {
            match self.patience.wait(stream.write_all(&header)).await {
                Err(Exhausted) => return Err(self.scene.failed(step, Status::L4Timeout, "")),
                Ok(Err(error)) => return Err(self.scene.failed(step, Status::L4Connection, &words(&error))),
                Ok(Ok(())) => {}
            }
        }
        let mut agreed_on_http2 = false;
        if let Some(tls) = &connection.tls {
            (stream, agreed_on_http2) = match self.patience.wait(agree(tls, stream)).await {
                Err(Exhausted) => return Err(self.scene.failed(step, Status::L6Timeout, "")),
                Ok(Err(why)) => return Err(self.scene.failed(step, Status::L6Response, &why)),
                Ok(Ok(agreed)) => agreed,
            };
        }
        (self.stream, self.http2, self.is_encrypted) = (Some(stream), None, connection.tls.is_some());
        self.speaks_http2 = match connection.proto {
            Some(proto) => proto == ServerProtocol::H2,
            None => agreed_on_http2,
        };
        if let Some(read) = self.plan.read {
            self.patience = Patience::new(read);
        }
        Ok(())
    }

    /// A connection by a socket that passes from check to check, where that makes no difference. `speaks`: we send the first bytes, or none follow.
    fn shared_socket(&self, address: &Address, speaks: bool) -> Option<Result<CheckSocket, ConnectError>> {
        let Address::Inet(peer) = address else { return None };
        let sockets = self.scene.subject.sockets.filter(|_| !self.is_linger)?;
        Some(sockets.connect(*peer, self.plan.dialer.options_of_any()?, speaks))
    }

    fn send(&mut self, bytes: &Bytes) -> Stepped {
        let text = self.scene.bytes(&mut self.received, bytes);
        match text {
            Some(text) => self.outgoing.extend_from_slice(&text),
            None => return Err(Report::new(Status::L7Response).info(NOT_HEX)),
        }
        self.received = Received::Raw(Vec::new());
        Ok(())
    }

    fn request(&mut self, request: &Request) -> Stepped {
        if self.speaks_http2 {
            let http2_request = self.scene.http2_request(&mut self.received, request, self.is_encrypted);
            let http2 = self.http2.get_or_insert_with(|| Box::new(Http2::new(&mut self.outgoing)));
            let sent = http2.send(http2_request, &mut self.outgoing);
            sent.map_err(|why| Report::new(Status::L7Response).info(why))?;
        } else {
            let bytes = self.scene.request(&mut self.received, request);
            self.outgoing.extend_from_slice(&bytes);
        }
        self.received = Received::Http(Box::new(Response::new(request.to)));
        Ok(())
    }

    /// Sends what was collected.
    async fn flush(&mut self, step: &Step) -> Stepped {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.outgoing);
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let sent = self.patience.wait(async {
            stream.write_all(&bytes).await?;
            stream.flush().await
        });
        match sent.await {
            Err(Exhausted) => Err(self.scene.failed(step, Status::L7Timeout, "")),
            Ok(Err(error)) => Err(self.scene.failed(step, Status::SocketError, &words(&error))),
            Ok(Ok(())) => Ok(()),
        }
    }

    async fn expect(&mut self, step: &Step, expectation: &Expectation) -> Result<Report, Report> {
        self.flush(step).await?;
        loop {
            let standing = self.judge(step, expectation);
            if let Some(result) = standing {
                return result;
            }
            // What HTTP/2 has to acknowledge. If that fails, reading tells why.
            if let Err(report) = self.flush(step).await
                && report.status == Status::L7Timeout
            {
                return Err(self.scene.failed(step, expectation.timeout, ""));
            }
            let room = match &self.received {
                Received::Nothing => RESPONSE_BYTES_MAX,
                Received::Raw(bytes) => RESPONSE_BYTES_MAX.saturating_sub(bytes.len()),
                Received::Http(response) => response.room(),
            };
            let Dialogue { stream: Some(stream), patience, received, http2, outgoing, .. } = self else {
                return Err(self.scene.failed(step, Status::L4Connection, "no connection"));
            };
            // The room for what comes is on the stack, and not in the check that waits.
            let reading = poll_fn(|cx| {
                let mut part = [MaybeUninit::uninit(); READ_BYTES];
                let mut part = ReadBuf::uninit(&mut part[..READ_BYTES.min(room)]);
                ready!(Pin::new(&mut **stream).poll_read(cx, &mut part))?;
                let part = part.filled();
                let taken = match (http2.as_deref_mut(), &mut *received) {
                    (Some(http2), Received::Http(response)) => take_http2(http2, part, response, outgoing),
                    (_, received) => received.take(part).map(|()| false),
                };
                Poll::Ready(Ok((part.len(), taken)))
            });
            match patience.wait(reading).await {
                Err(Exhausted) => return Err(self.scene.failed(step, expectation.timeout, "")),
                Ok(Err::<_, io::Error>(error)) if self.received.is_empty() => {
                    return Err(self.scene.failed(step, Status::SocketError, &words(&error)));
                }
                Ok(Err(_) | Ok((0, _))) => self.is_over = true,
                Ok(Ok((_, taken))) => self.is_over = taken?,
            }
        }
    }

    /// What comes of what has come, if it decides.
    fn judge(&mut self, step: &Step, expectation: &Expectation) -> Option<Result<Report, Report>> {
        match &expectation.matching {
            Matching::Http(expect) => self.judge_http(step, expectation, expect),
            Matching::Grpc => {
                let Received::Http(response) = &self.received else {
                    return Some(Err(Report::new(Status::L7Response)));
                };
                let finding = grpc::judge(response, self.is_over || response.is_complete());
                self.found(expectation, finding)
            }
            Matching::Raw(_) | Matching::Protocol(_) if self.received.is_empty() => {
                let status = expectation.error.unwrap_or(Status::L7Response);
                let number = step.number.unwrap_or_default();
                let comment = step.comment.as_ref().map(|text| format!(" comment: '{text}'")).unwrap_or_default();
                let told = format!("TCPCHK got an empty response at step {number}{comment}");
                self.is_over.then(|| Err(Report::new(status).info(told)))
            }
            Matching::Raw(pattern) => {
                let (received, scene) = (&mut self.received, &self.scene);
                let bytes = received.raw().to_vec();
                let mut render = |format: &Format| scene.text(received, format);
                match pattern.judge(expectation.negated, expectation.min_recv, &bytes, self.is_over, &mut render) {
                    Standing::Pending => None,
                    Standing::Met => Some(Ok(self.passed(expectation, None))),
                    Standing::Failed(told) => {
                        let told = match told.strip_prefix("TCPCHK ") {
                            Some(_) => format!("{told} at step {}", step.number.unwrap_or_default()),
                            None => told,
                        };
                        Some(Err(self.unmet(step, expectation, Report::new(Status::L7Response).info(told))))
                    }
                }
            }
            Matching::Protocol(judge) => {
                let finding = judge(self.received.raw(), self.is_over);
                self.found(expectation, finding)
            }
        }
    }

    /// What a protocol's own rules have found.
    fn found(&mut self, expectation: &Expectation, finding: Finding) -> Option<Result<Report, Report>> {
        match finding {
            Finding::Pending => None,
            Finding::Passed(info) => {
                let report = self.passed(expectation, None).info(info);
                Some(Ok(Report { is_only_logged: true, ..report }))
            }
            Finding::Failed(status, code, info) => {
                let code = u16::try_from(code).ok();
                Some(Err(Report { code, ..Report::new(status) }.info(info)))
            }
        }
    }

    fn judge_http(
        &mut self,
        step: &Step,
        expectation: &Expectation,
        expect: &Expect,
    ) -> Option<Result<Report, Report>> {
        let Received::Http(response) = &self.received else {
            return Some(Err(Report::new(Status::L7Response)));
        };
        let is_over = self.is_over || response.is_complete();
        let Some(head) = response.head().cloned() else {
            let report = Report::new(Status::L7Response);
            let place =
                || self.plan.script.steps.iter().position(|other| std::ptr::eq(other, step)).unwrap_or_default();
            return is_over.then(|| match self.http2.is_some() {
                true => Err(report.info(format!("TCPCHK got an empty response at step {}", place()))),
                false => Err(report),
            });
        };
        if self.plan.script.disable_on_404 && head.status == 404 {
            return Some(Ok(Report { code: Some(404), ..Report::new(Status::L7Conditional) }));
        }
        let content = response.content().to_vec();
        let (received, scene) = (&mut self.received, &self.scene);
        let mut render = |format: &Format| scene.text(received, format);
        match expect.judge(&head, &content, is_over, &mut render) {
            Judgement::Pending => None,
            Judgement::Met => Some(Ok(self.passed(expectation, Some(head.status)))),
            Judgement::Failed(report) => Some(Err(self.unmet(step, expectation, report))),
        }
    }

    /// An expectation is met: what that says of the check, if nothing follows.
    fn passed(&mut self, expectation: &Expectation, code: Option<u16>) -> Report {
        if !expectation.is_last {
            return Report { code, ..Report::new(Status::L7Ok) };
        }
        let info = match (&expectation.on_success, expectation.success, expectation.describe) {
            (Some(format), ..) => lossy(&self.scene.text(&mut self.received, format)),
            (None, Some(text), _) => text.into(),
            (None, None, Some(describe)) if expectation.describes_success => describe(self.received.raw()),
            (None, None, _) => String::new(),
        };
        let code = self.code(expectation).or(code);
        Report { code, ..Report::new(expectation.ok) }.info(info)
    }

    /// An expectation is not met, and this would be said if its line said nothing.
    fn unmet(&mut self, step: &Step, expectation: &Expectation, usual: Report) -> Report {
        let mut info = match (&expectation.on_error, expectation.describe) {
            (Some(format), _) => lossy(&self.scene.text(&mut self.received, format)),
            (None, Some(describe)) => describe(self.received.raw()),
            (None, None) => usual.info.clone(),
        };
        if let Some(comment) = &step.comment {
            info += &format!(" comment: {comment}");
        }
        let status = expectation.error.unwrap_or(usual.status);
        let code = self.code(expectation).or(usual.code);
        Report { code, ..Report::new(status) }.info(info)
    }

    fn code(&mut self, expectation: &Expectation) -> Option<u16> {
        if let Some(count) = expectation.count {
            return u16::try_from(count(self.received.raw())?).ok();
        }
        self.scene.number(&mut self.received, expectation.code.as_ref()?)
    }

    async fn close(&mut self) {
        if let Some(mut stream) = self.stream.take()
            && self.is_linger
        {
            // What fails here was judged already.
            let _ = self.patience.wait(stream.shutdown()).await;
        }
    }
}

/// A part of a response over HTTP/2 has come; whether nothing follows.
fn take_http2(http2: &mut Http2, part: &[u8], response: &mut Response, outgoing: &mut Vec<u8>) -> Result<bool, Report> {
    match http2.receive(part, response, outgoing) {
        Ok(()) => Ok(false),
        Err(Http2Failure::Ended(_)) if response.head().is_some() => Ok(true),
        Err(Http2Failure::Ended(why)) => Err(Report::new(Status::SocketError).info(why)),
        Err(Http2Failure::Malformed) => Err(Report::new(Status::L7Response)),
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// What a check's expressions see, and how its failures are described.
struct Scene<'p> {
    plan: &'p Plan,
    subject: &'p CheckSubject<'p>,
    variables: RefCell<CheckVariables>,
    /// The ends of its connection.
    ends: Ends,
}

impl Scene<'_> {
    fn with<T>(&self, received: &mut Received, evaluate: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let CheckSubject { server, backend, backend_id, registry, .. } = *self.subject;
        let live = LiveCheck { server, ends: self.ends, registry };
        let (raw, response) = match received {
            Received::Nothing => (None, None),
            Received::Raw(bytes) => (Some(&bytes[..]), None),
            Received::Http(response) => (None, response.parts()),
        };
        let name = server.name().clone();
        let facts = CheckFacts {
            now: SystemTime::now(),
            backend: ProxyName { name: backend, id: backend_id },
            server: &name,
            live: &live,
            received: raw,
            response,
            process: &registry.variables,
            random: &random,
        };
        self.variables.borrow_mut().with(facts, evaluate)
    }

    fn text(&self, received: &mut Received, format: &Format) -> Vec<u8> {
        let mut text = Vec::new();
        match format.constant() {
            Some(constant) => text.extend_from_slice(constant),
            None => self.with(received, |cx| format.write(cx, &mut text)),
        }
        text
    }

    /// `None`: what should be hexadecimal is not.
    fn bytes(&self, received: &mut Received, bytes: &Bytes) -> Option<Vec<u8>> {
        match bytes {
            Bytes::Plain(bytes) => Some(bytes.clone()),
            Bytes::Format(format) => Some(self.text(received, format)),
            Bytes::HexFormat(format) => from_hex(&self.text(received, format)),
        }
    }

    fn number<T: TryFrom<i64>>(&self, received: &mut Received, expr: &Expr) -> Option<T> {
        let number = self.with(received, |cx| match expr.eval(cx)? {
            // Bytes that were received: the digits that they begin with.
            Sample::Bin(bytes) => Sample::Str(bytes).into_int(),
            sample => sample.into_int(),
        });
        T::try_from(number?).ok()
    }

    /// A request as HAProxy writes it: names in lower case, `content-length` with a body, and `connection: close` from HTTP/1.1 on.
    fn request(&self, received: &mut Received, request: &Request) -> Vec<u8> {
        let mut text = |bytes: &Bytes| self.bytes(received, bytes).unwrap_or_default();
        let fields: Vec<_> = request.fields.iter().map(|(name, value)| (name, text(value))).collect();
        let host = fields.iter().find(|(name, _)| *name == "host").map(|(_, value)| &value[..]);
        let uri = with_authority(text(&request.uri), host);
        let body = request.body.as_ref().map(text);
        let mut out = [request.method.as_bytes(), b" ", &uri, b" ", request.version.as_bytes(), b"\r\n"].concat();
        let mut names_connection = false;
        for (name, value) in &fields {
            if *name == "connection" {
                // That it is closed is said below.
                names_connection |= !value.eq_ignore_ascii_case(b"close");
                if is_only_ours(value) {
                    continue;
                }
            }
            out.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        if self.plan.script.sends_state {
            out.extend_from_slice(format!("{STATE_HEADER}: {}\r\n", self.state()).as_bytes());
        }
        if let Some(body) = &body {
            out.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        if request.version == "HTTP/1.1" && !names_connection {
            out.extend_from_slice(b"connection: close\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&body.unwrap_or_default());
        out
    }

    /// A request of HTTP/2, without what is about an HTTP/1 connection.
    fn http2_request(&self, received: &mut Received, request: &Request, is_encrypted: bool) -> Http2Request {
        let mut text = |bytes: &Bytes| self.bytes(received, bytes).unwrap_or_default();
        let mut fields: Vec<(Vec<u8>, Vec<u8>)> =
            request.fields.iter().map(|(name, value)| (name.clone().into(), text(value))).collect();
        let (uri, body) = (text(&request.uri), request.body.as_ref().map(text));
        let host = fields.iter().position(|(name, _)| name == b"host").map(|at| fields.remove(at).1);
        let uri = with_authority(uri, host.as_deref());
        let mut scheme = if is_encrypted { b"https".to_vec() } else { b"http".to_vec() };
        let (mut authority, mut path) = (host, uri);
        if request.method == "CONNECT" {
            (scheme, authority, path) = (Vec::new(), Some(path), Vec::new());
        } else if let Some(at) = path.windows(3).position(|part| part == b"://").filter(|_| !path.starts_with(b"/")) {
            let rest = path.split_off(at + 3);
            path.truncate(at);
            let slash = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            (scheme, authority) = (path, Some(rest[..slash].to_vec()));
            path = if slash < rest.len() { rest[slash..].to_vec() } else { b"/".to_vec() };
        }
        if self.plan.script.kind == ScriptKind::Protocol {
            // Of gRPC, whose servers may insist on one.
            authority = Some(match &self.plan.address {
                Some(Address::Inet(address)) => address.to_string().into(),
                _ => b"localhost".to_vec(),
            });
        }
        if self.plan.script.sends_state {
            fields.push((STATE_HEADER.into(), self.state().into()));
        }
        if let Some(body) = &body {
            fields.push((b"content-length".into(), body.len().to_string().into()));
        }
        let method = request.method.clone().into();
        Http2Request { method, scheme, authority: authority.unwrap_or_default(), path, fields, body }
    }

    /// `http-check send-state`.
    fn state(&self) -> String {
        let CheckSubject { server, backend, state, node, .. } = self.subject;
        let (address, port) = match &server.config().address.target {
            ServerTarget::Fixed(Address::Inet(inet)) => (inet.ip().to_string(), inet.port().to_string()),
            ServerTarget::Fixed(_) => ("unix".into(), "unix".into()),
            ServerTarget::ClientDestination(inet) => (inet.ip().to_string(), inet.port().to_string()),
            ServerTarget::Unresolved { port } => ("-".into(), port.to_string()),
        };
        let (mut weights, mut served) = (0, 0);
        if let Some(backend) = server.backend() {
            for other in backend.servers() {
                weights += if other.is_usable() { other.effective_weight() } else { 0 };
                served += other.served();
            }
        }
        format!(
            "{state}; address={address}; port={port}; name={backend}/{}; node={node}; \
             weight={}/{weights}; scur={}/{served}; qcur={}",
            server.name(),
            server.effective_weight(),
            server.served(),
            server.queued(),
        )
    }

    /// A failure at a step: of `tcp-check` lines it says which.
    fn failed(&self, step: &Step, status: Status, why: &str) -> Report {
        if self.plan.script.kind != ScriptKind::Tcp {
            return Report::new(status).info(why);
        }
        let place = match step.number {
            None => " at initial connection step of tcp-check".to_owned(),
            Some(number) => {
                let action = match &step.action {
                    Action::Connect(connect) => connect.words(),
                    Action::Expect(expectation) => match &expectation.matching {
                        Matching::Raw(pattern) => pattern.words(),
                        Matching::Http(_) | Matching::Protocol(_) | Matching::Grpc => "expect".into(),
                    },
                    Action::Send(_) | Action::Request(_) => "send".into(),
                    Action::Set(_) | Action::Unset(_) | Action::Broken(_) => "set-var".into(),
                };
                format!(" at step {number} of tcp-check ({action})")
            }
        };
        let comment = step.comment.as_ref().map(|text| format!(" comment: '{text}'")).unwrap_or_default();
        Report::new(status).info(format!("{why}{place}{comment}"))
    }
}

/// An absolute target follows `Host`.
fn with_authority(uri: Vec<u8>, host: Option<&[u8]>) -> Vec<u8> {
    let Some(host) = host else { return uri };
    let Some(scheme) = uri.windows(3).position(|part| part == b"://").filter(|_| !uri.starts_with(b"/")) else {
        return uri;
    };
    let path = uri[scheme + 3..].iter().position(|byte| *byte == b'/').map_or(&b"/"[..], |at| &uri[scheme + 3 + at..]);
    [&uri[..scheme + 3], host, path].concat()
}

/// The handshake, and whether HTTP/2 was agreed on; or why there is none, as HAProxy says it and with the reason behind.
async fn agree(tls: &Tls, stream: Box<dyn Stream>) -> Result<(Box<dyn Stream>, bool), String> {
    let wrong_name = || {
        let which = if tls.name.is_some() { "expected" } else { "configured" };
        format!("Server presented an SSL certificate different from the {which} one")
    };
    let Target { config, name, .. } = tls.connector.target(tls.name.as_deref()).map_err(|_| wrong_name())?;
    match TlsConnector::from(config).connect(name, stream).await {
        Ok(stream) => {
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            Ok((Box::new(stream), is_http2))
        }
        Err(error) => Err(match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error) if is_wrong_name(error) => wrong_name(),
            Some(error) => format!("SSL handshake failure ({})", Failure::of(error, Refusal::take(error))),
            None => format!("SSL handshake failure ({})", words(&error)),
        }),
    }
}

/// The two ends of a TCP connection: ours, theirs.
pub(crate) type Ends = Option<(SocketAddr, SocketAddr)>;

/// The connection of a socket that passes from check to check, when it is there.
async fn shared(socket: CheckSocket, names_ends: bool) -> Result<(Box<dyn Stream>, Ends), String> {
    socket.connected().await.map_err(|error| words(&error))?;
    let ends = if names_ends { socket.ends() } else { None };
    Ok((Box::new(socket), ends))
}

/// Why a connection could not be started.
fn unstarted(error: &ConnectError) -> String {
    match error.step {
        ConnectStep::Connect => words(&error.source),
        ConnectStep::Socket | ConnectStep::Option(_) | ConnectStep::Source => words_of(&error.to_string()),
    }
}

/// Connects as traffic does ([`Dialer`]).
pub(crate) async fn open(
    dialer: &Dialer,
    address: &Address,
    is_linger: bool,
) -> Result<(Box<dyn Stream>, Ends), String> {
    let peer = dialer::endpoint(address).ok_or("a descriptor cannot be checked")?;
    let started =
        dialer.start(&peer, NEXT_PORT.fetch_add(PORTS_APART, Ordering::Relaxed)).map_err(|error| unstarted(&error))?;
    established(started.into_fd(), is_linger).await.map_err(|error| words(&error))
}

async fn established(fd: OwnedFd, is_linger: bool) -> io::Result<(Box<dyn Stream>, Ends)> {
    let is_unix = SockRef::from(&fd).domain()? == Domain::UNIX;
    if is_unix {
        return Ok((Box::new(UnixStream::from_std(fd.into())?), None));
    }
    let stream = TcpStream::from_std(fd.into())?;
    // Closing resets, so that checks leave no TIME_WAIT behind; a failure only costs such an entry.
    if !is_linger {
        let _ = stream.set_zero_linger();
    }
    let finished = || match connect::finished(&stream)? {
        true => Ok(()),
        false => Err(io::ErrorKind::WouldBlock.into()),
    };
    stream.async_io(Interest::WRITABLE, finished).await?;
    let ends = stream.local_addr().and_then(|from| Ok((from, stream.peer_addr()?))).ok();
    Ok((Box::new(stream), ends))
}

/// The system's words for an error, without Rust's addition of the number.
pub(crate) fn words(error: &io::Error) -> String {
    words_of(&error.to_string())
}

fn words_of(text: &str) -> String {
    text.split(" (os error").next().unwrap_or(text).to_string()
}
