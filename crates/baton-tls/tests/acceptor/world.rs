//! A `bind` over files in a folder, and clients that talk to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use baton_model::{Address, Bind, BindOptions, BindTls, CrtSource, Mode, Model, Proxy, Role, Source};
use baton_prove::certificates::{Authority, CertificateSpec, Issued};
use baton_tls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use baton_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use baton_tls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use baton_tls::rustls::{
    self, ClientConfig, ClientConnection, RootCertStore, ServerConnection, SupportedProtocolVersion, version,
};
use baton_tls::store::{SystemFiles, Wanted as WantedOfStore};
use baton_tls::tickets::TicketVault;
use baton_tls::{AcceptorProblem, Acceptors, Facts, Hello, Store, Unwanted};
use tempfile::TempDir;

/// Files, and what a process shares.
pub struct World {
    pub folder: TempDir,
    pub authority: Authority,
    pub acceptors: Acceptors,
    store: Arc<Store>,
    tickets: TicketVault,
}

impl World {
    /// With a certificate for `a.example` in `a.pem`, and the root in `root.pem`.
    pub fn new() -> World {
        let authority = Authority::new("Test").unwrap();
        let world = World {
            folder: tempfile::tempdir().unwrap(),
            acceptors: Acceptors::default(),
            store: Store::new(),
            tickets: TicketVault::new(seconds()).unwrap(),
            authority,
        };
        world.write("root.pem", world.authority.root_pem());
        world.write("between.pem", world.authority.between_pem());
        world.site("a.pem", CertificateSpec::server(["a.example"]));
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    pub fn site(&self, name: &str, wanted: CertificateSpec) -> Issued {
        let issued = self.authority.issue(&wanted).unwrap();
        self.write(name, issued.bundle_pem());
        issued
    }

    pub fn client(&self, wanted: CertificateSpec) -> Issued {
        self.authority.issue(&wanted).unwrap()
    }

    /// A model with this one `bind`.
    pub fn model(&self, tls: BindTls) -> Model {
        let mut proxy = Proxy::new("web", Role::Listen);
        proxy.mode = Mode::Http;
        proxy.binds.push(Bind {
            address: Address::Inet("127.0.0.1:443".parse().unwrap()),
            name: None,
            id: None,
            options: BindOptions { tls: Some(Arc::new(tls)), ..BindOptions::default() },
            source: Source::default(),
        });
        Model { proxies: vec![Arc::new(proxy)], ..Model::default() }
    }

    pub fn bind(&self, change: impl FnOnce(&mut BindTls)) -> BindTls {
        let crt = CrtSource::Crt { path: self.path("a.pem"), default: false };
        let mut tls = BindTls { certificates: vec![crt], ..BindTls::default() };
        change(&mut tls);
        tls
    }

    /// The acceptor of that `bind`, in use.
    pub fn acceptor(&self, change: impl FnOnce(&mut BindTls)) -> Arc<baton_tls::Acceptor> {
        self.accept(&self.model(self.bind(change))).unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    pub fn accept(&self, model: &Model) -> Result<Arc<baton_tls::Acceptor>, Vec<AcceptorProblem>> {
        let files = SystemFiles::default();
        let prepared = self.store.prepare(&WantedOfStore::of(model), &files).unwrap();
        let tickets = |_: &BindTls| self.tickets.own().clone();
        let upcoming = self.acceptors.prepare(model, &prepared.indexes(), &tickets, &files)?;
        let acceptor = upcoming.acceptors()[0].clone();
        prepared.commit();
        self.acceptors.commit(upcoming);
        Ok(acceptor)
    }

    /// A client's settings; `change` may do what it likes to what it can speak.
    pub fn visitor(&self, visitor: Visitor<'_>) -> Arc<ClientConfig> {
        self.build(&visitor, visitor.certificate.map(|issued| (issued.chain(), issued.key())))
    }

    /// A client's settings with any certificate and any key.
    pub fn visitor_with(
        &self,
        visitor: Visitor<'_>,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Arc<ClientConfig> {
        self.build(&visitor, Some((chain, key)))
    }

    fn build(
        &self,
        visitor: &Visitor<'_>,
        certificate: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.root().clone()).unwrap();
        let mut provider = aws_lc_rs::default_provider();
        (visitor.provider)(&mut provider);
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(visitor.versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match certificate {
            // Whether the two belong together is for the other side to see.
            Some((chain, key)) => {
                let key = aws_lc_rs::sign::any_supported_type(&key).unwrap();
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key))))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = visitor.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// What a client can do.
pub struct Visitor<'a> {
    pub versions: &'a [&'static SupportedProtocolVersion],
    pub provider: &'a dyn Fn(&mut CryptoProvider),
    pub certificate: Option<&'a Issued>,
    pub alpn: &'a [&'a str],
}

impl Default for Visitor<'_> {
    fn default() -> Self {
        static BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
        Visitor { versions: &BOTH, provider: &|_| {}, certificate: None, alpn: &[] }
    }
}

/// How a visit ended.
#[derive(Debug)]
pub enum End {
    Unwanted(Unwanted),
    /// We refuse the client.
    Server(rustls::Error),
    /// It refuses us.
    #[expect(dead_code, reason = "for who reads a failed test")]
    Client(rustls::Error),
}

/// A handshake of a client with what the acceptor chooses for it. Gives what our side knows.
pub fn visit(acceptor: &baton_tls::Acceptor, client: &Arc<ClientConfig>, name: &str) -> Result<Facts, End> {
    let mut client = ClientConnection::new(client.clone(), name.to_owned().try_into().unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    let chosen = {
        let hello = Hello::read(&hello).expect("it is whole").expect("it is a hello");
        acceptor.choose(&hello).map_err(End::Unwanted)?
    };
    let mut server = ServerConnection::new(chosen.config.clone()).unwrap();
    server.read_tls(&mut &hello[..]).unwrap();
    // What a client of TLS 1.3 learns last is the fate of its certificate: it reads until nothing comes any more.
    loop {
        let judged = server.process_new_packets().map_err(End::Server);
        let mut said = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut said).unwrap();
        }
        let quiet = said.is_empty();
        let mut said = &said[..];
        while !said.is_empty() {
            client.read_tls(&mut said).unwrap();
            let heard = client.process_new_packets().map_err(End::Client);
            judged.is_ok().then_some(heard).transpose()?;
        }
        judged?;
        let mut said = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut said).unwrap();
        }
        if quiet && said.is_empty() {
            assert!(!server.is_handshaking() && !client.is_handshaking());
            return Ok(chosen.facts(&server));
        }
        let mut said = &said[..];
        while !said.is_empty() {
            server.read_tls(&mut said).unwrap();
        }
    }
}

/// The result in a word or two.
pub fn outcome(result: Result<Facts, End>) -> String {
    match result {
        Ok(facts) => format!(
            "{} {}",
            baton_tls::names::version_name(facts.version.unwrap()),
            baton_tls::names::cipher_name(facts.suite.unwrap().suite()).unwrap()
        ),
        Err(end) => format!("{end:?}"),
    }
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}
