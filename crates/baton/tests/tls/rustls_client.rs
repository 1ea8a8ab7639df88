//! A client by hand: what it sends can be looked at, cut and changed before it goes out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::PATIENCE;
use crate::world::World;

/// A client that trusts the test's authority; `fragment` is the most bytes of a record, its head included.
pub fn client(world: &World, fragment: Option<usize>) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(world.at("ca.pem")).expect("a certificate")).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder.expect("the provider has both").with_root_certificates(roots).with_no_client_auth();
    config.max_fragment_size = fragment;
    ClientConnection::new(Arc::new(config), "a.example".try_into().expect("a name")).expect("it is right")
}

/// The first bytes that such a client sends.
pub fn hello(world: &World) -> Vec<u8> {
    let mut bytes = Vec::new();
    client(world, None).write_tls(&mut bytes).expect("memory takes it");
    bytes
}

/// A socket to the program under test.
pub fn socket(world: &World) -> TcpStream {
    let socket = TcpStream::connect(world.web).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    socket.set_nodelay(true).expect("a socket");
    socket
}

/// A connection with TLS on it.
pub struct Secure(StreamOwned<ClientConnection, TcpStream>);

impl Secure {
    pub fn new(world: &World, fragment: Option<usize>) -> Secure {
        Secure(StreamOwned::new(client(world, fragment), socket(world)))
    }

    /// Asks for so many bytes and reads them.
    #[track_caller]
    pub fn get(&mut self, bytes: usize) {
        let request = format!("GET /bytes/{bytes} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        self.0.write_all(request.as_bytes()).expect("it is open");
        let mut answer = Vec::new();
        let end = loop {
            let mut some = [0; 4096];
            let count = self.0.read(&mut some).expect("an answer");
            assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&some[..count]);
            if let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n")
                && answer.len() >= end + 4 + bytes
            {
                break end + 4;
            }
        };
        assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.len() == end + bytes);
    }

    /// The socket below, to write what no client writes.
    pub fn below(&mut self) -> &mut TcpStream {
        &mut self.0.sock
    }
}
