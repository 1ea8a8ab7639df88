//! Go reads what the record layer makes with its next keys. Baton begins a KeyUpdate after 2^24 records, far more than a test sends: so the
//! layer is at the other end itself, and made to owe a KeyUpdate in front of everything it says.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use baton_prove::stream::AnyServer;
use baton_records::{Cipher, Content, Layer, PLAIN_MAX, Role, Secret};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, ConnectionTrafficSecrets, KeyLog, ServerConfig, ServerConnection,
    SupportedCipherSuite,
};

use super::{Peer, certificates};
use crate::support::until;
use crate::tunnels::connect;

/// Messages to a server of Go.
const MESSAGES: usize = 200;

const NEW: [(&str, SupportedCipherSuite); 3] = [
    ("TLS_AES_128_GCM_SHA256", cipher_suite::TLS13_AES_128_GCM_SHA256),
    ("TLS_AES_256_GCM_SHA384", cipher_suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", cipher_suite::TLS13_CHACHA20_POLY1305_SHA256),
];

/// The traffic secrets of a connection.
#[derive(Debug, Default)]
struct Secrets(Mutex<BTreeMap<String, Vec<u8>>>);

impl KeyLog for Secrets {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        self.0.lock().expect("nobody panics").insert(label.to_owned(), secret.to_vec());
    }
}

impl Secrets {
    fn take(&self, label: &str) -> Secret {
        let secret = self.0.lock().expect("nobody panics").remove(label).expect("the handshake is complete");
        Secret::new(&secret).expect("it is short")
    }
}

fn provider(suite: SupportedCipherSuite) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { cipher_suites: vec![suite], ..aws_lc_rs::default_provider() })
}

/// One record, and no byte behind it. `None`: the end of the connection.
fn record(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut record = vec![0; 5];
    stream.read_exact(&mut record).ok()?;
    let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
    record.resize(5 + length, 0);
    stream.read_exact(&mut record[5..]).ok()?;
    Some(record)
}

/// Makes the handshake, and goes on without rustls.
fn agree(mut tls: Connection, stream: &mut TcpStream, secrets: &Secrets) -> Layer {
    while tls.is_handshaking() || tls.wants_write() {
        while tls.wants_write() {
            tls.write_tls(stream).expect("it is open");
        }
        if tls.is_handshaking() {
            let record = record(stream).expect("a handshake");
            tls.read_tls(&mut &record[..]).expect("memory");
            tls.process_new_packets().expect("both agree");
        }
    }
    let (role, order) = match &tls {
        Connection::Client(_) => (Role::Client, ["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"]),
        Connection::Server(_) => (Role::Server, ["SERVER_TRAFFIC_SECRET_0", "CLIENT_TRAFFIC_SECRET_0"]),
    };
    let extracted = tls.dangerous_extract_secrets().expect("they are released");
    let parts = |secrets: &ConnectionTrafficSecrets| match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
            (Cipher::Aes128Gcm, key.as_ref().to_vec(), iv.as_ref().to_vec())
        }
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
            (Cipher::Aes256Gcm, key.as_ref().to_vec(), iv.as_ref().to_vec())
        }
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            (Cipher::Chacha20Poly1305, key.as_ref().to_vec(), iv.as_ref().to_vec())
        }
        _ => panic!("another cipher"),
    };
    let ((cipher, sealing, sealing_iv), (_, opening, opening_iv)) = (parts(&extracted.tx.1), parts(&extracted.rx.1));
    let places = [(&sealing[..], &sealing_iv[..], extracted.tx.0), (&opening[..], &opening_iv[..], extracted.rx.0)];
    let secrets = order.map(|label| secrets.take(label));
    Layer::of_secrets(role, cipher, secrets, places, PLAIN_MAX).expect("keys of it")
}

/// Sends bytes behind a KeyUpdate.
fn send(layer: Layer, plain: &[u8], stream: &mut TcpStream) -> Layer {
    let mut bytes = layer.into_bytes();
    // As if the peer had asked for it.
    bytes[6] = 1;
    let mut layer = Layer::from_bytes(&bytes).expect("a layer");
    let mut out = vec![0; layer.sealed_len(plain.len())];
    let count = layer.seal(plain, &mut out).expect("numbers");
    assert!(!layer.owes());
    stream.write_all(&out[..count]).expect("it is open");
    layer
}

/// The next bytes. `None`: the end was said.
fn receive(layer: &mut Layer, stream: &mut TcpStream) -> Option<Vec<u8>> {
    loop {
        let mut record = record(stream).expect("it goes on, or its end is said");
        let opened = layer.open(&mut record, &mut [], &mut |_| true).expect("it is from the peer");
        match opened.expect("a whole record").content {
            Content::InPlace(range) => return Some(record[range].to_vec()),
            Content::End => return None,
            Content::InRoom(_) | Content::Control => {}
        }
    }
}

fn end(layer: &mut Layer, stream: &mut TcpStream) {
    let mut out = vec![0; layer.sealed_len(0)];
    let count = layer.seal_end(&mut out).expect("numbers");
    stream.write_all(&out[..count]).expect("it is open");
}

/// Sends back what comes over each connection.
fn serve(listener: TcpListener, suite: SupportedCipherSuite, pem: &str) {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).expect("PEM");
    let builder = ServerConfig::builder_with_provider(provider(suite)).with_protocol_versions(&[&TLS13]);
    let mut config = builder.expect("a version").with_no_client_auth().with_single_cert(chain, key).expect("its key");
    let secrets = Arc::new(Secrets::default());
    (config.enable_secret_extraction, config.key_log) = (true, secrets.clone());
    let config = Arc::new(config);
    // One after the other, as the client opens them.
    for mut stream in listener.incoming().map_while(Result::ok) {
        let tls = ServerConnection::new(config.clone()).expect("settings");
        let mut layer = agree(tls.into(), &mut stream, &secrets);
        while let Some(bytes) = receive(&mut layer, &mut stream) {
            layer = send(layer, &bytes, &mut stream);
        }
        end(&mut layer, &mut stream);
    }
}

#[test]
fn go_reads_with_each_next_key() {
    let folder = certificates();
    let mut go = Peer::go(folder.path());
    for (at, (name, _)) in NEW.into_iter().enumerate() {
        go.tell(&format!("serve {at} TLSv1.3 {name}"));
    }
    // Nothing is held back in the middle.
    go.tell("go");
    let pem = std::fs::read_to_string(folder.path().join("ec.pem")).expect("it was written");
    for (at, (name, suite)) in NEW.into_iter().enumerate() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let pem = pem.clone();
        std::thread::spawn(move || serve(listener, suite, &pem));
        go.tell(&format!("connect c{at} {port} TLSv1.3 {name}"));
    }
    for ((_, suite), port) in NEW.into_iter().zip(go.ports(NEW.len())) {
        let builder = ClientConfig::builder_with_provider(provider(suite)).with_protocol_versions(&[&TLS13]);
        let builder = builder.expect("a version").dangerous().with_custom_certificate_verifier(AnyServer::new());
        let mut config = builder.with_no_client_auth();
        let secrets = Arc::new(Secrets::default());
        (config.enable_secret_extraction, config.key_log) = (true, secrets.clone());
        let tls = ClientConnection::new(Arc::new(config), "a.example".try_into().expect("a name")).expect("settings");
        let mut stream = connect(format!("127.0.0.1:{port}").parse().expect("an address"));
        let mut layer = agree(tls.into(), &mut stream, &secrets);
        for number in 0..MESSAGES {
            let message = format!("message {number} {}", "x".repeat(number * 37 % 3000)).into_bytes();
            layer = send(layer, &message, &mut stream);
            let mut reply = Vec::new();
            while reply.len() < message.len() {
                reply.extend(receive(&mut layer, &mut stream).expect("the same comes back"));
            }
            assert_eq!(reply, message);
        }
        end(&mut layer, &mut stream);
        assert_eq!(receive(&mut layer, &mut stream), None);
    }
    until("its clients have got megabytes", || go.count("done ") == NEW.len());
    until("its servers have seen each end", || go.count("ended ") == NEW.len());
}
