//! TLS for tests: a certificate made on the spot, and both ends' settings with it.

use std::sync::Arc;

use baton_tls::rustls::crypto::aws_lc_rs::default_provider;
use baton_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use baton_tls::rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

/// The name in the certificate.
pub const NAME: &str = "web.example";

/// A server with a certificate, and a client that trusts it.
pub struct Ends {
    pub server: ServerConfig,
    pub client: ClientConfig,
}

impl Ends {
    /// Ends that speak these versions.
    pub fn of(versions: &[&'static SupportedProtocolVersion]) -> Ends {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
        let certificate: CertificateDer<'static> = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("certificate and key fit");
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("a root");
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ends { server, client }
    }
}
