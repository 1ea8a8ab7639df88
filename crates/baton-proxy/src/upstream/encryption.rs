//! TLS with a server: what a generation prepares for it, and how a connection begins.

use std::rc::Rc;
use std::sync::Arc;

use baton_model::Server;
use baton_rules::{Context, Expr, Files, RulePosition};
use baton_tls::rustls;
use baton_tls::rustls::client::UnbufferedClientConnection;
use baton_tls::rustls::sign::CertifiedKey;
use baton_tls::{Connector, Connectors, Target};

use crate::stream::{Agreeing, RecordPool, Stream, Tls};

/// The settings of TLS with a server, ready for use. They go with the server's other settings, of which they are a part.
#[derive(Debug)]
pub struct ServerTlsContext {
    /// For connections, and for health checks.
    pub connector: Arc<Connector>,
    /// For connections that HTTP/1 is to be spoken over (`ws`), where others offer HTTP/2.
    http1: Option<Arc<Connector>>,
    /// `sni`.
    sni: Option<Expr>,
}

impl ServerTlsContext {
    /// What a server needs; `None` when neither its traffic nor its checks are encrypted. `before` is what was in use under its
    /// name.
    ///
    /// # Errors
    /// The reason against it, as a sentence.
    pub fn prepare(
        server: &Server,
        connectors: Connectors<'_>,
        files: &dyn Files,
        before: Option<&ServerTlsContext>,
    ) -> Result<Option<Arc<ServerTlsContext>>, String> {
        let Some(settings) = server.any_tls() else { return Ok(None) };
        let connector = connectors.build(settings, before.map(|before| &before.connector));
        let connector = connector.map_err(|problem| problem.0)?;
        let sni =
            settings.sni.as_deref().map(|text| Expr::compile(text, RulePosition::BackendRequest, files)).transpose();
        let sni = sni.map_err(|fault| format!("'sni' : {}", fault.message))?;
        let offers_http2 = settings.alpn.iter().flatten().any(|name| name == "h2");
        let http1 = offers_http2.then(|| Arc::new(connector.with_protocols(Some(&["http/1.1".to_owned()]))));
        Ok(Some(Arc::new(ServerTlsContext { connector, http1, sni })))
    }

    /// Whether a connection needs to know what `sni` gives.
    pub fn wants_name(&self) -> bool {
        self.sni.is_some()
    }

    /// The name to ask for. `None`: none is asked for.
    pub fn name(&self, cx: &Context<'_>) -> Option<Box<str>> {
        let name = self.sni.as_ref()?.eval(cx)?.into_text();
        let name = std::str::from_utf8(&name).ok().filter(|name| !name.is_empty())?;
        Some(name.into())
    }

    /// Lets `stream` begin a handshake, which offers nothing but HTTP/1 if that `is_http1`.
    ///
    /// # Errors
    /// When no server could have the name.
    pub fn begin(
        &self,
        stream: &mut Stream,
        name: Option<&str>,
        records: Rc<RecordPool>,
        is_http1: bool,
    ) -> Result<Begun, rustls::Error> {
        let connector = self.http1.as_ref().filter(|_| is_http1).unwrap_or(&self.connector);
        let Target { config, name, identity, edition } = connector.target(name)?;
        let agreeing = Agreeing::with_server(UnbufferedClientConnection::new(config, name)?);
        stream.secure(Tls::new(agreeing, None, records));
        Ok(Begun { identity, edition })
    }
}

/// A handshake that began.
#[derive(Debug)]
pub struct Begun {
    /// What is shown to a server that asks (`crt`).
    pub identity: Option<Arc<CertifiedKey>>,
    edition: u64,
}

/// By what a connection was encrypted.
#[derive(Clone, Debug)]
pub struct Agreed {
    encryption: Arc<ServerTlsContext>,
    /// The state of the files that were used: see [`Connector::edition`].
    edition: u64,
}

impl Agreed {
    /// By `encryption`, as it was when the handshake began.
    pub fn new(encryption: Arc<ServerTlsContext>, begun: &Begun) -> Agreed {
        Agreed { encryption, edition: begun.edition }
    }

    /// By `encryption` as it is now, in another process, where it was by these [terms](Agreed::terms). `None`: by something else.
    pub fn elsewhere(encryption: Arc<ServerTlsContext>, terms: &str) -> Option<Agreed> {
        let (edition, now) = encryption.connector.terms()?;
        (*now == *terms).then_some(Agreed { encryption, edition })
    }

    /// As text for another process; `None`: no handshake of now would be by the same files.
    pub fn terms(&self) -> Option<Arc<str>> {
        let (edition, terms) = self.encryption.connector.terms()?;
        (edition == self.edition).then_some(terms)
    }

    /// Whether a handshake of now would verify the server by the same files, and show it the same certificate.
    pub fn is_current(&self) -> bool {
        self.edition == self.encryption.connector.edition()
    }
}

/// Whether connections of one may be used where the other is asked for.
pub fn is_same(one: Option<&Agreed>, other: Option<&Arc<ServerTlsContext>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(&one.encryption.connector, &other.connector) && one.is_current(),
        (Some(_), None) | (None, Some(_)) => false,
    }
}
