//! TLS 1.2 and 1.3 as a client, by rustls with the cryptography of AWS-LC.
//!
//! Older versions are not spoken: rustls has none.

mod sessions;

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    pin::Pin,
    str::FromStr,
    sync::Arc,
    task::{Context, Poll},
};

use rustls::{
    ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion,
    client::Resumption,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;

use self::sessions::TlsSessions;
use super::{AnyServer, Stream, Target};

/// How TLS is spoken with a server; [`TlsOptions::build`] makes a [`Tls`] of it.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// The server's name or address, which its certificate is checked against; `None` means the address connected to.
    pub name: Option<String>,
    /// Whether the name is told to the server (SNI, RFC 6066 section 3). Addresses never are.
    pub sni: bool,
    /// The oldest version offered.
    pub oldest: TlsVersion,
    /// The newest version offered.
    pub newest: TlsVersion,
    /// Whose certificates are accepted.
    pub verify: Verify,
    /// What the client shows when the server asks for a certificate; `None` means nothing.
    pub certificate: Option<ClientCertificate>,
    /// The application protocols offered (ALPN, RFC 7301), best first; none means that the extension is not sent.
    pub alpn: Vec<String>,
    /// Whether a new connection may take up the session of an earlier one.
    pub resumption: bool,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// RFC 5246.
    V1_2,
    /// RFC 8446.
    V1_3,
}

/// Whose certificates are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Those of the authorities that the system trusts.
    System,
    /// Those of the authorities in this PEM file.
    File(PathBuf),
    /// Everybody's, whatever it says. It is not even looked whether the server has the certificate's key.
    Nothing,
}

/// A client's certificate and key, as PEM files; they may be the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, followed by those between it and its authority.
    pub chain: PathBuf,
    /// Its private key (PKCS #8, PKCS #1 or SEC 1).
    pub key: PathBuf,
}

impl Default for TlsOptions {
    /// Any version, certificates checked with the system's authorities, `http/1.1` offered, sessions resumed.
    fn default() -> TlsOptions {
        TlsOptions {
            name: None,
            sni: true,
            oldest: TlsVersion::V1_2,
            newest: TlsVersion::V1_3,
            verify: Verify::System,
            certificate: None,
            alpn: vec!["http/1.1".to_owned()],
            resumption: true,
        }
    }
}

impl TlsOptions {
    /// Reads the files and makes what connections need.
    ///
    /// # Errors
    /// A file that cannot be read or has not in it what it should, a name that is none, versions the wrong way round. The text
    /// names the file.
    pub fn build(&self) -> io::Result<Tls> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let known: [(TlsVersion, &'static SupportedProtocolVersion); 2] =
            [(TlsVersion::V1_2, &TLS12), (TlsVersion::V1_3, &TLS13)];
        let versions: Vec<&'static SupportedProtocolVersion> = known
            .into_iter()
            .filter(|(version, _)| (self.oldest..=self.newest).contains(version))
            .map(|(_, supported)| supported)
            .collect();
        if versions.is_empty() {
            return Err(invalid("the oldest version of TLS is newer than the newest one"));
        }
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|error| invalid(error.to_string()))?;
        let builder = match &self.verify {
            Verify::System => builder.with_root_certificates(system_authorities()?),
            Verify::File(path) => builder.with_root_certificates(authorities_in(path)?),
            Verify::Nothing => builder.dangerous().with_custom_certificate_verifier(AnyServer::new()),
        };
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::from_pem_file(&own.key).map_err(|error| in_file(&own.key, error))?;
                builder
                    .with_client_auth_cert(certificates_in(&own.chain)?, key)
                    .map_err(|error| in_file(&own.chain, error))?
            }
        };
        config.enable_sni = self.sni;
        config.alpn_protocols = self.alpn.iter().map(|name| name.clone().into_bytes()).collect();
        config.resumption = match self.resumption {
            true => Resumption::store(Arc::new(TlsSessions::default())),
            false => Resumption::disabled(),
        };
        let name = match &self.name {
            None => None,
            Some(name) => Some(
                ServerName::try_from(name.clone())
                    .map_err(|_| invalid(format!("'{name}' is neither a host name nor an address")))?,
            ),
        };
        Ok(Tls { config: Arc::new(config), name })
    }
}

fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text.into())
}

fn in_file(path: &Path, error: impl fmt::Display) -> io::Error {
    invalid(format!("{}: {error}", path.display()))
}

fn certificates_in(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(in_file(path, "it contains no certificate")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(in_file(path, error)),
    }
}

fn authorities_in(path: &Path) -> io::Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in certificates_in(path)? {
        store.add(certificate).map_err(|error| in_file(path, error))?;
    }
    Ok(store)
}

/// Single certificates that cannot be read are passed over: the system has dozens.
fn system_authorities() -> io::Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    let (usable, _) = store.add_parsable_certificates(found.certs);
    if usable == 0 {
        let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "the system trusts no certificate authority{why}; install the package ca-certificates, or name a file"
            ),
        ));
    }
    Ok(store)
}

impl FromStr for TlsVersion {
    type Err = String;

    /// `1.2` or `1.3`.
    fn from_str(text: &str) -> Result<TlsVersion, String> {
        match text {
            "1.2" => Ok(TlsVersion::V1_2),
            "1.3" => Ok(TlsVersion::V1_3),
            "1.0" | "1.1" => Err(format!("TLS {text} is not supported (RFC 8996); expected 1.2 or 1.3")),
            _ => Err(format!("unknown TLS version '{text}'; expected 1.2 or 1.3")),
        }
    }
}

/// How TLS is spoken, ready for use. Clones share their sessions.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl Tls {
    /// The host name that the certificate is checked against, if one was given.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.name {
            Some(ServerName::DnsName(name)) => Some(name.as_ref()),
            _ => None,
        }
    }

    /// The certificate that the server at `address` shows on a connection of its own, after a handshake in which it was checked.
    /// On a resumed session it is that of the first handshake.
    ///
    /// # Errors
    /// What connecting or the handshake says; no time limit of its own.
    pub async fn shown(&self, address: SocketAddr) -> io::Result<Vec<u8>> {
        let stream = Stream::Tcp(tokio::net::TcpStream::connect(address).await?);
        let stream = self.handshake(stream, &address.into()).await?;
        let Stream::Tls(stream) = &stream else { return Err(io::Error::other("the TLS handshake failed")) };
        let shown = stream.0.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        Ok(shown.map(|certificate| certificate.to_vec()).unwrap_or_default())
    }

    /// Speaks TLS over `stream`, which leads to `target`.
    pub(super) async fn handshake(&self, stream: Stream, target: &Target) -> io::Result<Stream> {
        let name = self.name.clone().unwrap_or_else(|| match target {
            Target::Tcp(address) => ServerName::from(address.ip()),
            Target::Unix(_) => ServerName::from(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        });
        let stream = TlsConnector::from(self.config.clone()).connect(name, RawStream(stream)).await?;
        Ok(Stream::Tls(Box::new(TlsStream(stream))))
    }
}

/// A connection on which TLS has come to be.
#[derive(Debug)]
pub(crate) struct TlsStream(tokio_rustls::client::TlsStream<RawStream>);

impl TlsStream {
    pub(super) fn resumed(&self) -> bool {
        self.0.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    pub(super) fn is_http2(&self) -> bool {
        self.0.get_ref().1.alpn_protocol() == Some(b"h2")
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Records that the socket did not take at once wait inside; who waits for an answer has to push them on.
        if self.0.get_ref().1.wants_write()
            && let Poll::Ready(Err(_)) = Pin::new(&mut self.0).poll_flush(cx)
        {
            // Reading tells better what happened.
        }
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// The socket under TLS, which does not tell of a failed write: what can be read afterwards says better what happened, such as
/// an alert that came before the close.
#[derive(Debug)]
struct RawStream(Stream);

impl AsyncRead for RawStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for RawStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes).map(|written| Ok(written.unwrap_or(bytes.len())))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
