//! Certificates for servers and clients of tests, made by openssl.

use std::{path::PathBuf, process::Command, sync::Arc};

use baton_prove::{
    TlsOptions,
    stream::{ClientCertificate, Verify},
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// A folder with an authority (`ca.pem`), a server's certificate for `localhost` and 127.0.0.1, a client's one, and each
/// together with its key (`server.both`).
pub struct Certificates {
    pub folder: tempfile::TempDir,
}

impl Certificates {
    pub fn new() -> Certificates {
        let certificates = Certificates { folder: tempfile::tempdir().expect("a folder") };
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"];
        let openssl = |words: &[&str]| {
            let output = Command::new("openssl").args(words).current_dir(certificates.folder.path()).output();
            let output = output.expect("openssl is installed by scripts/setup test");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        let request = |words: &[&str]| openssl(&[&["req", "-x509"], &key[..], words].concat());
        request(&["-subj", "/CN=Test authority", "-keyout", "ca.key", "-out", "ca.pem"]);
        for name in ["server", "client"] {
            let (subject, key, pem) = (format!("/CN={name}"), format!("{name}.key"), format!("{name}.pem"));
            request(&[
                "-subj",
                &subject,
                "-keyout",
                &key,
                "-out",
                &pem,
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-addext",
                "subjectAltName=DNS:localhost,IP:127.0.0.1",
                "-addext",
                "basicConstraints=critical,CA:FALSE",
            ]);
            let read = |file: &str| std::fs::read_to_string(certificates.at(file)).expect("just written");
            let both = read(&pem) + &read(&key);
            std::fs::write(certificates.at(&format!("{name}.both")), both).expect("written");
        }
        certificates
    }

    pub fn at(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// For a server with the name `localhost`, which must show a certificate of this authority.
    pub fn options(&self) -> TlsOptions {
        TlsOptions {
            name: Some("localhost".to_owned()),
            verify: Verify::File(self.at("ca.pem")),
            ..TlsOptions::default()
        }
    }

    /// The client's certificate.
    pub fn own(&self) -> Option<ClientCertificate> {
        Some(ClientCertificate { chain: self.at("client.pem"), key: self.at("client.key") })
    }

    /// A server of this program that shows the server's certificate.
    pub fn server(&self) -> Arc<ServerConfig> {
        let chain = vec![CertificateDer::from_pem_file(self.at("server.pem")).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_file(self.at("server.key")).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has what they need")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("they belong together");
        Arc::new(config)
    }
}
