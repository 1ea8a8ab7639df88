//! Certificates that change under load: by files in a watched directory, by the runtime API, and while one process takes over
//! from another. Every client checks the chain, the name and that the server has the key of what it shows, so that whoever gets
//! half of one and half of another certificate fails.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use baton_prove::certificates::{Authority, CertificateSpec};
use baton_prove::load::LoadHandle;
use baton_prove::stream::Verify;
use baton_prove::{
    Load, LoadOptions, LoadResult, Origin, OriginHandle, OriginOptions, Request, ServerEndpoint, TlsOptions,
};
use tempfile::TempDir;

use crate::support::{PATIENCE, Proxy, free_address};

/// Certificates of the site. Clients ask for all of them in turn.
const NAMES: usize = 20;
/// Connections that ask at a time.
const CONNECTIONS: usize = 10;
/// The pause between two replacements.
const EVERY: Duration = Duration::from_millis(10);
/// New connections of each test, unless BATON_HANDSHAKES says how many; a hundred thousand are the full size.
const HANDSHAKES: u64 = 1_500;
/// The pause between two takeovers.
const TAKEOVER_EVERY: Duration = Duration::from_millis(200);

fn handshakes() -> u64 {
    std::env::var("BATON_HANDSHAKES").ok().and_then(|text| text.parse().ok()).unwrap_or(HANDSHAKES)
}

/// A site with a directory of certificates.
struct Site {
    folder: TempDir,
    authority: Authority,
    web: SocketAddr,
    origin: OriginHandle,
}

fn name(number: usize) -> String {
    format!("site-{number:02}.example")
}

impl Site {
    fn new() -> Site {
        let site = Site {
            folder: tempfile::tempdir().expect("a folder for the test"),
            authority: Authority::new("Test").expect("an authority"),
            web: free_address(),
            origin: Origin::start(OriginOptions::new("o")).expect("loopback has a free port"),
        };
        std::fs::create_dir(site.certs()).expect("the folder is ours");
        std::fs::write(site.authority_file(), site.authority.root_pem()).expect("the folder is ours");
        (0..NAMES).for_each(|number| site.replace(number));
        site
    }

    fn certs(&self) -> std::path::PathBuf {
        self.folder.path().join("certs")
    }

    fn authority_file(&self) -> std::path::PathBuf {
        self.folder.path().join("ca.pem")
    }

    fn file(&self, number: usize) -> std::path::PathBuf {
        self.certs().join(name(number)).with_extension("pem")
    }

    /// A new certificate of this name, as a bundle.
    fn bundle(&self, number: usize) -> String {
        let wanted = CertificateSpec::server([&*name(number)]);
        self.authority.issue(&wanted).expect("a certificate").bundle_pem()
    }

    /// Puts a new one in the place of the old one, whole at any moment.
    fn replace(&self, number: usize) {
        let aside = self.folder.path().join("next");
        let replaced =
            std::fs::write(&aside, self.bundle(number)).and_then(|()| std::fs::rename(&aside, self.file(number)));
        replaced.expect("the folder is ours");
    }

    fn config(&self, words: &str) -> String {
        format!(
            "global\n nbthread 2\n maxconn 2000\n stats socket {folder}/socket level admin\ndefaults\n mode http\n timeout connect 5s\n \
             timeout client 30s\n timeout server 30s\nfrontend web\n bind {web} ssl crt {certs} {words}\n default_backend app\n\
             backend app\n server o {origin}\n",
            folder = self.folder.path().display(),
            web = self.web,
            certs = self.certs().display(),
            origin = self.origin.address(),
        )
    }

    /// New connections, each with a whole handshake, for all names in turn; or ones that resume where they can.
    fn load(&self, resumption: bool, count: Option<u64>) -> LoadHandle {
        let server = |number: usize| {
            let verify = Verify::File(self.authority_file());
            let tls = TlsOptions { name: Some(name(number)), verify, resumption, ..TlsOptions::default() };
            ServerEndpoint { tls: Some(tls.build().expect("good options")), ..self.web.into() }
        };
        let request = |server| Request { server, ..Request::get("/bytes/200") };
        let options = LoadOptions {
            servers: (0..NAMES).map(server).collect(),
            requests: (0..NAMES).map(request).collect(),
            keep_alive: false,
            concurrency: CONNECTIONS,
            count,
            ..LoadOptions::new(self.web)
        };
        Load::start(options).expect("the options are right")
    }
}

#[track_caller]
fn assert_clean(what: &str, result: &LoadResult, said: &str) {
    assert!(result.errors.is_empty() && result.counts.completed > 0, "{what}: {:?}", result.errors);
    assert_eq!(result.counts.failed(), 0, "{what}: {:?}\n{said}", result.failures.first());
}

/// Does something every ten milliseconds until the load has ended.
fn meanwhile(load: &LoadHandle, mut change: impl FnMut(usize)) -> usize {
    let mut next = Instant::now();
    for times in 0.. {
        if load.is_finished() {
            return times;
        }
        change(times);
        next = (next + EVERY).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    unreachable!("a range without an end")
}

/// One command of the runtime API; its answer.
#[track_caller]
fn ask(socket: &Path, command: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("the socket is there");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(command.as_bytes()).expect("it reads");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[tokio::test]
async fn files_that_are_replaced_are_felt_by_nobody() {
    let site = Site::new();
    let proxy = Proxy::start(&site.config("watch"));
    let load = site.load(false, Some(handshakes()));
    let times = meanwhile(&load, |times| site.replace(times % NAMES));
    let result = load.wait().await;
    assert_clean(&format!("{times} replacements"), &result, &proxy.said());
    // What was written last is shown in the end.
    let last = (times + NAMES - 1) % NAMES;
    shows(&site, last, &proxy).await;
}

/// Waits until the file of this name is what is shown.
async fn shows(site: &Site, number: usize, proxy: &Proxy) {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let wanted = CertificateDer::from_pem_file(site.file(number)).expect("a certificate");
    let verify = Verify::File(site.authority_file());
    let tls = TlsOptions { name: Some(name(number)), verify, resumption: false, ..TlsOptions::default() };
    let tls = tls.build().expect("good options");
    let end = Instant::now() + PATIENCE;
    while tls.shown(site.web).await.expect("a handshake") != wanted.as_ref() {
        assert!(Instant::now() < end, "the last certificate is not shown:\n{}", proxy.said());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn certificates_set_by_the_runtime_api_are_felt_by_nobody() {
    let site = Site::new();
    let proxy = Proxy::start(&site.config(""));
    let socket = site.folder.path().join("socket");
    let load = site.load(false, Some(handshakes()));
    let times = meanwhile(&load, |times| {
        let file = site.file(times % NAMES).display().to_string();
        let said = ask(&socket, &format!("set ssl cert {file} <<\n{}\n", site.bundle(times % NAMES)));
        assert!(said.contains("ransaction"), "{said}");
        let said = ask(&socket, &format!("commit ssl cert {file}\n"));
        assert!(said.contains("Success"), "{said}");
    });
    assert_clean(&format!("{times} replacements"), &load.wait().await, &proxy.said());
}

#[tokio::test]
async fn certificates_change_while_one_process_takes_over_from_another() {
    let site = Site::new();
    let mut now = Proxy::start(&site.config("watch"));
    let whole = site.load(false, Some(handshakes()));
    let resumed = site.load(true, None);
    let stop = AtomicBool::new(false);
    let mut before = Vec::new();
    let (takeovers, times) = std::thread::scope(|scope| {
        let replacing = scope.spawn(|| {
            let times = meanwhile(&whole, |times| site.replace(times % NAMES));
            stop.store(true, Ordering::Relaxed);
            times
        });
        while !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            let next = now.replace(&[]);
            before.push(std::mem::replace(&mut now, next));
            std::thread::sleep(TAKEOVER_EVERY.saturating_sub(began.elapsed()));
        }
        (before.len(), replacing.join().expect("it does not panic"))
    });
    assert!(takeovers > 1, "only {takeovers}");
    // Not before: the folder of the first one has the file of all.
    for old in before {
        let (status, said) = old.wait();
        assert!(status.success(), "{status}:\n{said}");
    }
    let what = format!("{takeovers} takeovers, {times} replacements");
    assert_clean(&what, &whole.wait().await, &now.said());
    let resumed = resumed.stop().await;
    assert_clean(&what, &resumed, &now.said());
    // Sessions live on: who has been here before does not pay for a whole handshake after each takeover.
    let part = resumed.resumed as f64 / resumed.connections as f64;
    assert!(part > 0.5, "{what}: only {} of {} were resumed", resumed.resumed, resumed.connections);
    let last = (times + NAMES - 1) % NAMES;
    shows(&site, last, &now).await;
}
