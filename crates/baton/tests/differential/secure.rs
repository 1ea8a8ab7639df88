//! Clients over TLS: a connection of the script is one end of a pair, and a thread speaks TLS with the program under test for it.
//! Nothing is verified; what was agreed on and which certificate was shown is noted, to be compared.

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use baton_prove::certificates::{Authority, CertificateSpec, Issued, KeyKind};
use baton_prove::stream::AnyServer;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use crate::world::Link;

/// How TLS is spoken.
#[derive(Debug, Clone, Default)]
pub struct Secure {
    /// The name asked for; none is told without one.
    pub name: Option<String>,
    /// The file with the client's certificate and key.
    pub certificate: Option<String>,
    /// No newer version than this is offered.
    pub old: bool,
    /// The protocols offered.
    pub alpn: Vec<String>,
}

impl Secure {
    /// `tls` and the words behind it: `sni=NAME`, `cert=FILE`, `1.2`, `alpn=ONE,OTHER`. `None` without `tls`.
    pub fn of(words: &[&str]) -> Option<Secure> {
        let at = words.iter().position(|word| *word == "tls")?;
        let mut secure = Secure::default();
        for word in &words[at + 1..] {
            match word.split_once('=') {
                Some(("sni", name)) => secure.name = Some(name.to_string()),
                Some(("cert", file)) => secure.certificate = Some(file.to_string()),
                Some(("alpn", names)) => secure.alpn = names.split(',').map(str::to_string).collect(),
                _ => secure.old |= *word == "1.2",
            }
        }
        Some(secure)
    }

    /// `read` gives the content of the case's files.
    fn config(&self, read: impl Fn(&str) -> io::Result<Vec<u8>>) -> io::Result<ClientConfig> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let versions: &[&SupportedProtocolVersion] = if self.old { &[&TLS12] } else { &[&TLS13, &TLS12] };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(AnyServer::with_its_key());
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let pem = read(file)?;
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
                let key = PrivateKeyDer::from_pem_slice(&pem).map_err(io::Error::other)?;
                let chain = chain.map_err(io::Error::other)?;
                builder.with_client_auth_cert(chain, key).map_err(io::Error::other)?
            }
        };
        config.enable_sni = self.name.is_some();
        config.alpn_protocols = self.alpn.iter().map(|name| name.clone().into_bytes()).collect();
        Ok(config)
    }
}

/// The files of a case: the certificate of each, by its name.
pub type Shown = Vec<(String, CertificateDer<'static>)>;

/// The files that the lines of a `certificates` section ask for:
/// `FILE server NAME..`, `FILE client NAME`, `FILE root`, `FILE authorities`, `FILE revoked FILE..`; with `rsa`, `expired`, `early`
/// or `stranger` (of another authority).
pub fn files(text: &str) -> Result<Vec<(String, Vec<u8>)>, String> {
    let say = |error: io::Error| error.to_string();
    let authority = Authority::new("Test").map_err(say)?;
    let stranger = Authority::new("Stranger").map_err(say)?;
    let mut issued: Vec<(String, Issued)> = Vec::new();
    let mut files = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (flags, words): (Vec<&str>, Vec<&str>) =
            words.into_iter().partition(|word| ["rsa", "expired", "early", "stranger"].contains(word));
        let by = if flags.contains(&"stranger") { &stranger } else { &authority };
        let [file, what, names @ ..] = &words[..] else { return Err(format!("what is `{line}`?")) };
        let content = match *what {
            "root" => by.root_pem(),
            "authorities" => by.root_pem() + &by.between_pem(),
            "revoked" => {
                let of = |name: &&str| issued.iter().find(|(file, _)| file == name).map(|(_, issued)| issued.serial);
                let serials: Option<Vec<u64>> = names.iter().map(of).collect();
                by.revoke(&serials.ok_or("a revoked certificate comes before")?).map_err(say)?
            }
            "server" | "client" => {
                let mut wanted = match *what {
                    "server" => CertificateSpec::server(names.iter().copied()),
                    _ => CertificateSpec::client(names.first().ok_or("a client has a name")?),
                };
                for flag in flags {
                    wanted = match flag {
                        "rsa" => wanted.with_key(KeyKind::Rsa2048),
                        "expired" => wanted.expired(),
                        "early" => wanted.not_yet(),
                        _ => wanted,
                    };
                }
                let made = by.issue(&wanted).map_err(say)?;
                let bundle = made.bundle_pem();
                issued.push((file.to_string(), made));
                bundle
            }
            _ => return Err(format!("what is `{line}`?")),
        };
        files.push((file.to_string(), content.into_bytes()));
    }
    Ok(files)
}

/// The certificates among a case's files.
pub fn shown(files: &[(String, Vec<u8>)]) -> Shown {
    let first = |(name, content): &(String, Vec<u8>)| {
        Some((name.clone(), CertificateDer::pem_slice_iter(content).next()?.ok()?))
    };
    files.iter().filter_map(first).collect()
}

/// Speaks TLS over `far` for a connection of the script, the other end of which is `near`.
pub fn relay(link: &Link, near: UnixStream, far: TcpStream, secure: &Secure, files: &[(String, Vec<u8>)]) {
    let read = |name: &str| {
        let found = files.iter().find(|(file, _)| file == name).map(|(_, content)| content.clone());
        found.ok_or_else(|| io::Error::other(format!("the case has no file {name}")))
    };
    let (name, config, shown) = (secure.name.clone(), secure.config(read), shown(files));
    let link = link.clone();
    thread::spawn(move || {
        let fault = match config {
            Ok(config) => speak(&link, near, far, name, config, &shown).err(),
            Err(error) => Some(error),
        };
        if let Some(error) = fault {
            link.note_tls(format!("ended by {}", cause(&error)));
        }
    });
}

/// A failure as both programs' clients see it: rustls' words for what the other side said, the system's otherwise.
fn cause(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => format!("the alert {alert:?}"),
        Some(other) => other.to_string(),
        None => error.kind().to_string(),
    }
}

fn speak(
    link: &Link,
    near: UnixStream,
    far: TcpStream,
    name: Option<String>,
    config: ClientConfig,
    shown: &Shown,
) -> io::Result<()> {
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut near = tokio::net::UnixStream::from_std(near)?;
        let far = tokio::net::TcpStream::from_std(far)?;
        let name = name.unwrap_or_else(|| "nobody.example".to_string());
        let name: ServerName<'static> = name.try_into().map_err(io::Error::other)?;
        let tls = TlsConnector::from(Arc::new(config)).connect(name, far).await?;
        link.note_tls(agreed(tls.get_ref().1, shown));
        let (mut from_near, mut to_near) = near.split();
        let (mut from_far, mut to_far) = tokio::io::split(tls);
        let up = async {
            let mut bytes = vec![0; 16_384];
            while let Ok(count @ 1..) = from_near.read(&mut bytes).await {
                to_far.write_all(&bytes[..count]).await?;
                to_far.flush().await?;
            }
            to_far.shutdown().await
        };
        let down = async {
            let mut bytes = vec![0; 16_384];
            let ended = loop {
                match from_far.read(&mut bytes).await {
                    Ok(0) => break Ok(()),
                    Ok(count) => to_near.write_all(&bytes[..count]).await?,
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            if ended.is_ok() {
                to_near.shutdown().await?;
            }
            ended
        };
        // Once the program has closed, what the script sends goes nowhere; a failed write is told better by reading.
        tokio::pin!(up, down);
        tokio::select! {
            ended = &mut down => ended,
            _ = &mut up => down.await,
        }
    })
}

/// What a handshake agreed on, in a line.
fn agreed(tls: &ClientConnection, shown: &Shown) -> String {
    let own = tls.peer_certificates().and_then(|chain| chain.first());
    let file = shown.iter().find(|(_, certificate)| Some(certificate) == own);
    let cipher = tls.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite())).unwrap_or_default();
    let protocol = tls.alpn_protocol().map_or("none".into(), String::from_utf8_lossy);
    let version = tls.protocol_version().map(|version| format!("{version:?}")).unwrap_or_default();
    format!(
        "{version}, {cipher}, protocol {protocol}, certificate {}",
        file.map_or("of no file", |(name, _)| name.as_str())
    )
}
