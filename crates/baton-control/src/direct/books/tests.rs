//! Counters of the kernel over looks, restarts and takeovers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use baton_config::{FixedEnvironment, Options, load};
use baton_direct::DestinationFigures;
use baton_proxy::Registry;
use baton_tls::Connectors;

use super::*;

struct BooksDriver {
    model: Arc<Model>,
    generation: Arc<Generation>,
    books: Books,
}

impl BooksDriver {
    fn new() -> BooksDriver {
        let text = "listen web\n mode direct\n bind 10.0.0.1:80-81\n server a 10.0.0.2\n server b 10.0.0.3\n";
        let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text));
        let model = Arc::new(loaded.model.expect("it is well"));
        let registry = Registry::new(2, Instant::now());
        let outside = crate::Outside::new("/".into(), None).expect("there is a root");
        let files = (&outside as &dyn baton_rules::Files, Connectors::default());
        let asked = (model.clone(), &loaded.rules);
        let generation = Generation::prepare(None, asked, 10, &registry, files, Instant::now());
        let generation = generation.expect("nothing is to be opened").commit(None, &registry, Instant::now());
        BooksDriver { model, generation, books: Books::default() }
    }

    /// Connections of servers a and b by the port, and what the figures say after that: section, a and b.
    fn look(&mut self, ports: &[(u16, u64, u64)]) -> [u64; 3] {
        let figures: Vec<Figures> = ports.iter().map(|&(port, a, b)| figures(port, a, b)).collect();
        self.books.enter(&figures, &self.model, &self.generation);
        self.shown()
    }

    fn shown(&self) -> [u64; 3] {
        let back = &self.generation.backends["web"];
        let front = self.generation.frontends[0].state.counters.total(Counter::Connections);
        assert_eq!(front, back.figures.counters.total(Counter::Sessions));
        let server = |name: &str| back.servers[name].counters.total(Counter::Sessions);
        [front, server("a"), server("b")]
    }
}

fn figures(port: u16, a: u64, b: u64) -> Figures {
    let counters = |connections| Counters { connections, bytes_in: connections * 100, ..Counters::default() };
    let at = |last: u8, connections| DestinationFigures {
        address: SocketAddr::from(([10, 0, 0, last], port)),
        counters: counters(connections),
        active: 1,
        inactive: 0,
        persistent: 0,
    };
    let address = SocketAddr::from(([10, 0, 0, 1], port));
    let key = ServiceKey::Address { protocol: baton_direct::Protocol::Tcp, address };
    Figures { key, counters: counters(a + b), destinations: vec![at(2, a), at(3, b)] }
}

#[test]
fn services_of_a_section_are_added_up() {
    let mut scene = BooksDriver::new();
    assert_eq!(scene.look(&[(80, 3, 4), (81, 10, 20)]), [37, 13, 24]);
    assert_eq!(scene.look(&[(80, 3, 5), (81, 10, 20)]), [38, 13, 25]);
    let open = scene.generation.frontends[0].state.open.load(Ordering::Relaxed);
    assert_eq!(open, 4, "one for each server and port");
    let state = scene.generation.backends["web"].state.server("a").expect("it is there");
    assert_eq!((state.served(), state.served_max()), (2, 2));
}

#[test]
fn a_service_that_was_made_anew_goes_on() {
    let mut scene = BooksDriver::new();
    assert_eq!(scene.look(&[(80, 3, 4)]), [7, 3, 4]);
    assert_eq!(scene.look(&[(80, 1, 0)]), [8, 4, 4], "the kernel's counters began at 0");
    assert_eq!(scene.look(&[]), [8, 4, 4]);
    assert_eq!(scene.look(&[(80, 2, 2)]), [12, 6, 6], "it was away in between");
}

#[test]
fn who_takes_over_counts_nothing_twice() {
    let mut scene = BooksDriver::new();
    let back = &scene.generation.backends["web"];
    // What the process before had counted when it was told to somebody.
    scene.generation.frontends[0].state.counters.inherit(Counter::Connections, 7);
    back.figures.counters.inherit(Counter::Sessions, 7);
    back.servers["a"].counters.inherit(Counter::Sessions, 3);
    back.servers["b"].counters.inherit(Counter::Sessions, 4);
    assert_eq!(scene.look(&[(80, 5, 4)]), [9, 5, 4], "two came in between");
    assert_eq!(scene.look(&[(80, 6, 4)]), [10, 6, 4]);
}
