//! What a reload touches, from the text on: counted, and seen by which plans are new ones.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;

use baton_config::{FixedEnvironment, load};
use baton_kernel::retire::SynFilter;
use baton_proxy::BackendPlan;
use baton_rules::NoFiles;
use baton_tls::Connectors;
use socket2::SockRef;

use super::*;
use crate::listeners::tests::free_address;

const FRONT: &str = "frontend web\n bind 127.0.0.1:80\n use_backend b if { path /b }\n default_backend a\n";
const A: &str = "backend a\n server s1 127.0.0.1:1\n server s2 127.0.0.1:2\n";
const B: &str = "backend b\n http-request deny if { path -f paths }\n server s1 127.0.0.1:3 weight 1\n";

struct Reloads {
    registry: Registry,
    used: Configuration,
    generation: Option<Arc<Generation>>,
}

impl Reloads {
    fn begin(text: &str) -> Reloads {
        let (used, registry) = (Configuration::default(), Registry::new(1, Instant::now()));
        let mut reloads = Reloads { registry, used, generation: None };
        reloads.reload(text, "/x");
        reloads
    }

    /// Puts a text in use; `paths` is the file of patterns. Which backends have their plans of before, and how many balancers were
    /// touched.
    fn reload(&mut self, text: &str, paths: &str) -> (Vec<Arc<str>>, usize) {
        let text = format!("defaults\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n{text}");
        let mut environment = FixedEnvironment::with_file("a.cfg", text);
        environment.files.insert("paths".into(), paths.into());
        let mut loaded = load(&Options::file("a.cfg"), &environment);
        loaded.rules.share(&self.used.rules, || {});
        let mut model = loaded.model.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
        model.share(&self.used.model, || {});
        let configuration = Configuration::asked(Arc::new(model), Arc::new(loaded.rules));
        // Nothing is read again: there are no files.
        let (files, now) = ((&NoFiles as &dyn Files, Connectors::default()), Instant::now());
        let asked = (configuration.model.clone(), &*configuration.rules);
        let before = self.generation.take();
        let new = Generation::prepare(before.as_deref(), asked, 1000, &self.registry, files, now).unwrap();
        let new = new.commit(before.as_deref(), &self.registry, now);
        let is_kept = |name: &&Arc<str>| new.has_same_backend(before.as_deref(), name);
        let mut kept: Vec<Arc<str>> = new.backends.keys().filter(is_kept).cloned().collect();
        kept.sort();
        let reconfigured = new.reconfigured;
        (self.used, self.generation) = (configuration, Some(new));
        (kept, reconfigured)
    }

    fn backend(&self, name: &str) -> Arc<BackendPlan> {
        self.generation.as_ref().unwrap().backends[name].clone()
    }
}

fn check(text: &str, paths: &str, kept: &[&str], reconfigured: usize) {
    let mut reloads = Reloads::begin(&[FRONT, A, B].concat());
    let (found, count) = reloads.reload(text, paths);
    let found: Vec<&str> = found.iter().map(|name| &**name).collect();
    assert_eq!((&*found, count), (kept, reconfigured), "{text}");
}

#[test]
fn a_reload_touches_the_backends_that_it_changes() {
    check(&[FRONT, A, B].concat(), "/x", &["a", "b"], 0);
    check(&[FRONT, A, &B.replace("weight 1", "weight 2")].concat(), "/x", &["a"], 1);
    check(&[FRONT, A, &B.replace("deny", "deny status 404")].concat(), "/x", &["a"], 1);
    check(&[FRONT, A, "backend c\n server s1 127.0.0.1:4\n", B].concat(), "/x", &["a"], 1);
    // Another number, and lines further down: requests see it, the balancer has nothing to learn.
    check(&[FRONT, "backend c\n server s1 127.0.0.1:4\n", A, B].concat(), "/x", &[], 1);
    check(&["# a remark\n", FRONT, A, B].concat(), "/x", &["a", "b"], 0);
}

#[test]
fn a_file_of_patterns_that_changed_leaves_the_rules_that_use_it_as_they_are() {
    let text = [FRONT, A, B].concat();
    let mut reloads = Reloads::begin(&text);
    let keys = |reloads: &Reloads| {
        let list = reloads.used.rules.references().list();
        let file = list.iter().find(|one| one.file().is_some()).expect("one").live();
        file.page(None, 0, 10).iter().map(|entry| String::from_utf8_lossy(entry.key()).into_owned()).collect::<Vec<_>>()
    };
    let before = (reloads.backend("b"), keys(&reloads));
    assert_eq!(reloads.reload(&text, "/y"), (vec!["a".into(), "b".into()], 0));
    assert!(Arc::ptr_eq(&before.0.rules, &reloads.backend("b").rules));
    reloads.used.rules.references().commit();
    assert_eq!((before.1, keys(&reloads)), (vec!["/x".into()], vec!["/y".into()]));
}

#[test]
fn a_server_that_stays_is_the_same_one_in_a_backend_that_changes() {
    let mut reloads = Reloads::begin(&[FRONT, A, B].concat());
    let before = reloads.backend("a");
    reloads.reload(&[FRONT, &A.replace("127.0.0.1:2", "127.0.0.1:9"), B].concat(), "/x");
    let after = reloads.backend("a");
    let same: Vec<bool> =
        before.proxy.servers.iter().zip(&after.proxy.servers).map(|(a, b)| Arc::ptr_eq(a, b)).collect();
    assert_eq!(same, [true, false]);
    assert!(Arc::ptr_eq(&before.state, &after.state));
}

#[tokio::test]
async fn a_change_whose_last_step_fails_is_refused_whole_and_the_next_one_works() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.cfg");
    let [a, b, c] = [(); 3].map(|()| free_address());
    let outside = Outside::new(folder.path().to_owned(), None).unwrap();
    let vault = TicketVault::new(0).unwrap();
    let mut line = ChangeLine::new(1, Arc::new(CellMemory::private()), vault, Commands(&[]), Instant::now(), |_| ());
    let mut workers = Workers::start(1, line.registry().clone(), 16384, &CpuMap::default()).unwrap();
    let local = tokio::task::LocalSet::new();
    let changes = async {
        let change = async |line: &mut ChangeLine, addresses: &[SocketAddr], seconds: u32| {
            let binds: String = addresses.iter().map(|address| format!(" bind {address}\n")).collect();
            let text = format!("defaults\n mode http\n timeout client {seconds}s\nfrontend web\n{binds}");
            std::fs::write(&file, text).unwrap();
            let (encryption, direct) = (line.encryption(), line.foresight());
            let used = (&line.configuration(), line.registry().overrides(), Arc::default());
            let read = read_all(&Options::file(&file), &outside, (&encryption, &direct), used);
            line.change(read, &outside, &workers).await
        };
        assert!(change(&mut line, &[a, b], 1).await.accepted && is_served(b));
        assert!(change(&mut line, &[a], 2).await.accepted);
        let is_b = |socket: &&BorrowedFd<'_>| SockRef::from(*socket).local_addr().unwrap().as_socket() == Some(b);
        // The kernel lets nobody in to this one any more.
        SynFilter::lock(line.listeners().sockets().iter().find(is_b).unwrap()).unwrap();
        let before = (line.number(), line.model().clone());

        let refused = change(&mut line, &[a, b, c], 3).await;
        assert!(!refused.accepted && refused.messages.iter().any(|message| message.rendered.contains(&b.to_string())));
        assert!(line.number() == before.0 && Arc::ptr_eq(line.model(), &before.1), "the one before is in use");
        assert!(is_served(a) && TcpListener::bind(c).is_ok(), "and nothing of the other one");
        assert_eq!(line.listeners().leaving_count(), 1);

        assert!(change(&mut line, &[a, c], 3).await.accepted);
        assert!(is_served(a) && is_served(c));
        workers.command(Command::Abort).await;
    };
    local.run_until(changes).await;
    workers.join();
}

/// Whether a request gets a response.
fn is_served(address: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    response.starts_with(b"HTTP/1.1 503")
}
