//! How long a server with many certificates takes until a replaced one is in effect for new handshakes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::Server;
use super::place::RunEnvironment;
use super::processes::Processes;
use crate::certificates::{KeyKind, site, site_spec, write_sites};
use crate::proof::HeldCertificates;
use crate::stream::{Tls, TlsOptions, Verify};

/// How long a server with many certificates may take to start, and to reload.
pub(crate) const CERTIFICATES_MAX: Duration = Duration::from_secs(300);
/// How long it may take from its start until it shows a certificate that it has.
const SHOWN_MAX: Duration = Duration::from_secs(10);
/// How long one handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Time between two handshakes.
const HANDSHAKE_EVERY: Duration = Duration::from_millis(2);
/// The folder of the certificates, and the file of the new one, in the private directory.
const FOLDER: &str = "certs";
const RENEWED: &str = "renewed.pem";

/// A server's certificates, and the commands that are done to them.
pub(crate) struct Renewal<'a> {
    count: usize,
    place: &'a RunEnvironment,
    /// The command that puts the new certificate of the last site into its file, and does the server's event.
    event: String,
    /// The command that replaces the first site's without an event.
    replace: Option<String>,
}

impl<'a> Renewal<'a> {
    /// Makes the certificates; `None` for a server without an event.
    ///
    /// # Errors
    /// A sentence, when they cannot be made.
    pub(crate) fn prepare(
        count: usize,
        server: &Server,
        place: &'a RunEnvironment,
    ) -> Result<Option<Renewal<'a>>, String> {
        let Some(event) = &server.event else { return Ok(None) };
        let told = |error: std::io::Error| format!("cannot create the certificates: {error}");
        let folder = place.directory().join(FOLDER);
        std::fs::create_dir(&folder).map_err(told)?;
        let all: Vec<usize> = (1..=count).collect();
        write_sites(place.authority(), KeyKind::P256, &folder, &all).map_err(told)?;
        let event = format!("mv {RENEWED} {FOLDER}/{}.pem && {}", site(count), place.fill_event(event, 1));
        let replace = server.replace_certificate.as_ref().map(|command| place.fill(command));
        Ok(Some(Renewal { count, place, event, replace }))
    }

    /// The commands besides the start, as somebody can type them.
    pub(crate) fn commands(&self) -> impl Iterator<Item = String> {
        [self.event.clone()].into_iter().chain(self.replace.clone())
    }

    /// Replaces one certificate with the server's event and, where it has a command for that, another one without.
    ///
    /// # Errors
    /// A sentence, when the server does not show its certificates, or not the new one in time.
    pub(crate) async fn measure(&self, processes: &mut Processes) -> Result<HeldCertificates, String> {
        let in_effect = Some(self.until_replaced(self.count, &self.event, processes).await?);
        let without_event = match &self.replace {
            Some(command) => Some(self.until_replaced(1, command, processes).await?),
            None => None,
        };
        Ok(HeldCertificates { count: self.count, in_effect, without_event, failed: None })
    }

    /// Replaces a site's certificate by this command, and returns how long that takes until a handshake shows the new one.
    async fn until_replaced(
        &self,
        number: usize,
        command: &str,
        processes: &mut Processes,
    ) -> Result<Duration, String> {
        let told = |error: std::io::Error| error.to_string();
        let name = site(number);
        let options = TlsOptions {
            name: Some(name.clone()),
            verify: Verify::File(self.place.authority_file()),
            resumption: false,
            ..TlsOptions::default()
        };
        let client = options.build().map_err(told)?;
        let old = certificate_in(&self.place.directory().join(FOLDER).join(format!("{name}.pem")))?;
        if !until_shown(&client, self.place.tls(), &old, SHOWN_MAX).await {
            return Err(format!("the certificate of {name} is not served"));
        }
        let renewed = self.place.authority().issue(&site_spec(number)).map_err(told)?;
        std::fs::write(self.place.directory().join(RENEWED), renewed.bundle_pem()).map_err(told)?;
        let begin = Instant::now();
        if let Some(fault) = processes.run(command, CERTIFICATES_MAX).await.fault {
            return Err(format!("the certificate was not replaced: {fault}"));
        }
        let left = CERTIFICATES_MAX.saturating_sub(begin.elapsed());
        match until_shown(&client, self.place.tls(), &renewed.certificate, left).await {
            true => Ok(begin.elapsed()),
            false => Err(format!("the new certificate was not in effect after {} s", CERTIFICATES_MAX.as_secs())),
        }
    }
}

/// Makes handshakes until one shows this certificate; `false` when none does within `limit`.
async fn until_shown(client: &Tls, address: SocketAddr, wanted: &[u8], limit: Duration) -> bool {
    let shows = async {
        loop {
            if let Ok(Ok(shown)) = timeout(HANDSHAKE_MAX, client.shown(address)).await
                && shown == wanted
            {
                return;
            }
            sleep(HANDSHAKE_EVERY).await;
        }
    };
    timeout(limit, shows).await.is_ok()
}

/// The first certificate of a file.
fn certificate_in(file: &std::path::Path) -> Result<Vec<u8>, String> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let first = CertificateDer::from_pem_file(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(first.to_vec())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustls::ServerConfig;
    use rustls::crypto::aws_lc_rs;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::certificates::{Authority, Issued};

    fn acceptor(issued: &Issued) -> TlsAcceptor {
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("the provider has them");
        let config = builder.with_no_client_auth().with_single_cert(issued.chain(), issued.key());
        Arc::new(config.expect("they belong together")).into()
    }

    #[tokio::test]
    async fn a_replaced_certificate_is_in_effect_when_a_handshake_shows_it_and_not_before() {
        const BEFORE: usize = 3;
        let authority = Authority::new("Test").expect("an authority");
        let [old, new, never] = [1, 1, 1].map(|number| authority.issue(&site_spec(number)).expect("issued"));
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("ca.pem");
        std::fs::write(&file, authority.root_pem()).expect("written");
        let verify = Verify::File(file);
        let options = TlsOptions { name: Some(site(1)), verify, resumption: false, ..TlsOptions::default() };
        let client = options.build().expect("a client");

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let handshakes = Arc::new(AtomicUsize::new(0));
        let (shown_old, shown_new, count) = (acceptor(&old), acceptor(&new), handshakes.clone());
        let server = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a client");
                let number = count.fetch_add(1, Ordering::Relaxed);
                let acceptor = if number < BEFORE { &shown_old } else { &shown_new };
                let _ = acceptor.accept(stream).await;
            }
        });
        let long = Duration::from_secs(30);
        assert!(until_shown(&client, address, &old.certificate, long).await);
        assert!(until_shown(&client, address, &new.certificate, long).await);
        assert_eq!(handshakes.load(Ordering::Relaxed), BEFORE + 1);
        assert!(!until_shown(&client, address, &never.certificate, Duration::from_millis(50)).await);
        server.abort();
    }
}
