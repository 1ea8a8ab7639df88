//! Upgrades beneath established connections of every kind at once, by the load of `bench/sessions`, with few of each: kept HTTP connections,
//! WebSockets, TCP sessions, transfers and HTTP/2, with and without TLS on either side, whose keys change in between. No client notices, and every
//! old process ends.

#[path = "../../../baton-prove/examples/sessions/book.rs"]
#[allow(dead_code, reason = "times are measured by the program only")]
mod book;
#[path = "../../../baton-prove/examples/sessions/clients.rs"]
mod clients;
#[path = "../../../baton-prove/examples/sessions/lane.rs"]
mod lane;
#[path = "../../../baton-prove/examples/sessions/origin.rs"]
mod origin;
#[path = "../../../baton-prove/examples/sessions/products.rs"]
#[allow(dead_code, reason = "the other products are measured only")]
mod products;

use std::fs;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use baton_prove::certificates::{Authority, CertificateSpec};

use self::book::Book;
use self::clients::{Load, Site};
use self::products::{Files, Fronts, Product};
use crate::support::{Proxy, until};
use crate::tunnels::replaced;

type Failed = Box<dyn std::error::Error>;

/// Takeovers one after the other.
const TAKEOVERS: usize = 3;
/// Requests and messages that have to go well after the last one.
const AFTERWARDS: u64 = 500;

#[test]
fn upgrades_are_not_noticed_by_any_kind_of_connection() {
    let load = Load {
        kept: 64,
        websockets: 32,
        tunnels: 32,
        http2: 4,
        transfers: 16,
        request_every: Duration::from_millis(200),
        message_every: Duration::from_millis(100),
        transfer_seconds: 4,
        plain: false,
    };
    let authority = Authority::new("sessions").expect("keys");
    let issued = authority.issue(&CertificateSpec::server(["localhost"])).expect("a certificate");
    let (book, folder) = (Arc::new(Book::new()), tempfile::tempdir().expect("a folder"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let origins = runtime.block_on(async { origin::start(&book, &issued) }).expect("free ports");
    let fronts = Fronts::free().expect("free ports");
    let files = Files::write(Product::Baton, folder.path(), &issued.bundle_pem(), &fronts, &origins).expect("ours");
    let text = fs::read_to_string(&files.config).expect("ours");
    let mut now = Proxy::start(&text.replace("global\n", "global\n tune.handover.patience 500ms\n"));
    let site = Arc::new(Site::new(book.clone(), load.clone(), fronts, &authority).expect("versions of TLS"));
    // It ends with the test.
    std::thread::spawn(move || {
        runtime.block_on(async {
            site.start();
            pending::<()>().await
        });
    });
    until("all are there", || book.connections() == load.connections() as u64);
    let before = replaced(&mut now, TAKEOVERS);
    let done = book.exchanges();
    until("they go on", || book.exchanges() >= done + AFTERWARDS);
    assert_eq!(book.notes(), [""; 0]);
    assert!(book.key_updates() > 0, "keys have changed");
    for old in before {
        let (status, said) = old.wait();
        assert!(status.success(), "{said}");
    }
}
