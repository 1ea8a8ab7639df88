//! A process is replaced again and again beneath thousands of established connections of every kind; what is counted is what their clients
//! notice, how long the old processes stay, and what all of them take.
//!
//! `sessions --product baton|haproxy|nginx-reload|nginx-binary|envoy [--upgrades N] [--every SECONDS] [--kept N] [--websockets N]
//! [--tunnels N] [--http2 N] [--transfers N] [--transfer-seconds N] [--settle SECONDS] [--plain] [--checks] PROGRAM [PROGRAM…]`
//!
//! Several programs follow each other in turn. With `--checks` Baton only validates its configuration (`-c`) in the place of each upgrade, beside
//! the process that serves: what the start of any process costs those on the same CPUs. Writes one JSON object.

mod book;
mod clients;
mod lane;
mod origin;
mod processes;
mod products;

use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_prove::Progress;
use baton_prove::certificates::{Authority, CertificateSpec, Issued};
use serde_json::json;

use crate::book::Book;
use crate::clients::{Load, Site};
use crate::origin::Origins;
use crate::processes::Processes;
use crate::products::{Files, Fronts, Product};

type Failed = Box<dyn std::error::Error>;

/// Upgrades in a block; a time without upgrades follows each block.
const BLOCK: u64 = 25;
/// How long that is: as long as the block, and at most so long.
const QUIET_MAX: Duration = Duration::from_secs(15);
/// How long it may take until all connections are there.
const CONNECTED_MAX: Duration = Duration::from_secs(120);
/// Quiet time before the first upgrade.
const WARM: Duration = Duration::from_secs(5);

struct Asked {
    product: Product,
    programs: Vec<String>,
    upgrades: u64,
    every: Duration,
    settle: Duration,
    checks: bool,
    load: Load,
}

fn main() -> Result<(), Failed> {
    let asked = arguments(std::env::args().skip(1))?;
    let folder = tempfile::tempdir()?;
    let authority = Authority::new("sessions")?;
    let issued = authority.issue(&CertificateSpec::server(["localhost"]))?;
    let (book, fronts) = (Arc::new(Book::new()), Fronts::free()?);
    let ends = OtherEnds::start(&book, issued)?;
    let files = Files::write(asked.product, folder.path(), &ends.bundle, &fronts, &ends.origins)?;
    let mut processes = Processes::new(asked.product, asked.programs.clone(), files)?;
    processes.start()?;
    let site = Arc::new(Site::new(book.clone(), asked.load.clone(), fronts, &authority)?);
    ends.runtime.spawn(async move { site.start() });
    run(&asked, &book, &mut processes)
}

/// Servers and clients, on a thread of their own, so that starting processes does not hold them up. It ends with this program.
struct OtherEnds {
    runtime: tokio::runtime::Handle,
    origins: Origins,
    /// Certificate and key, as PEM.
    bundle: String,
}

impl OtherEnds {
    fn start(book: &Arc<Book>, issued: Issued) -> Result<OtherEnds, Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (handle, bundle, book) = (runtime.handle().clone(), issued.bundle_pem(), book.clone());
        let origins = runtime.block_on(async { origin::start(&book, &issued) })?;
        std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        Ok(OtherEnds { runtime: handle, origins, bundle })
    }
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Asked, Failed> {
    let load = Load {
        kept: 2000,
        websockets: 500,
        tunnels: 500,
        http2: 16,
        transfers: 16,
        request_every: Duration::from_secs(4),
        message_every: Duration::from_secs(2),
        transfer_seconds: 150,
        plain: false,
    };
    let mut asked = Asked {
        product: Product::Baton,
        programs: Vec::new(),
        upgrades: 500,
        every: Duration::from_secs(1),
        settle: Duration::from_secs(15),
        checks: false,
        load,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--product" => asked.product = value()?.parse()?,
            "--upgrades" => asked.upgrades = value()?.parse()?,
            "--every" => asked.every = Duration::try_from_secs_f64(value()?.parse()?)?,
            "--settle" => asked.settle = Duration::try_from_secs_f64(value()?.parse()?)?,
            "--kept" => asked.load.kept = value()?.parse()?,
            "--websockets" => asked.load.websockets = value()?.parse()?,
            "--tunnels" => asked.load.tunnels = value()?.parse()?,
            "--http2" => asked.load.http2 = value()?.parse()?,
            "--transfers" => asked.load.transfers = value()?.parse()?,
            "--transfer-seconds" => asked.load.transfer_seconds = value()?.parse()?,
            "--checks" => asked.checks = true,
            "--plain" => (asked.load.plain, asked.load.http2) = (true, 0),
            _ if word.starts_with('-') => return Err(format!("unknown option {word}").into()),
            _ => asked.programs.push(word),
        }
    }
    if asked.programs.is_empty() {
        return Err("no program to replace".into());
    }
    Ok(asked)
}

fn run(asked: &Asked, book: &Book, processes: &mut Processes) -> Result<(), Failed> {
    let mut progress = Progress::stderr();
    let (connected, wanted) = (Instant::now(), asked.load.connections() as u64);
    while book.connections() < wanted {
        if connected.elapsed() > CONNECTED_MAX {
            return Err(format!("only {} of {wanted} connections: {}", book.connections(), book.to_json()).into());
        }
        processes.watch(Duration::from_millis(100), false);
    }
    // Connections that begin with a pause have had their first exchange.
    processes.watch(WARM, false);
    book.measure();
    processes.watch(WARM, false);
    let (before, mut refused, mut done, began) = (processes.now(), 0_u64, 0_u64, Instant::now());
    while done + refused < asked.upgrades {
        let block = Instant::now();
        book.set_moving(true);
        for _ in 0..BLOCK.min(asked.upgrades - done - refused) {
            let due = Instant::now() + asked.every;
            book.replaces();
            let is_done = if asked.checks { processes.check().map(|()| true) } else { processes.replace() };
            if is_done? {
                done += 1
            } else {
                refused += 1
            }
            progress.show(Instant::now(), || {
                let (exchanges, updates) = (book.exchanges(), book.key_updates());
                format!(
                    "{:?}: {done} upgrades, {refused} refused, {exchanges} exchanges, {updates} updates of keys",
                    asked.product
                )
            });
            processes.watch(due.saturating_duration_since(Instant::now()), false);
        }
        book.set_moving(false);
        processes.watch(block.elapsed().min(QUIET_MAX), false);
    }
    let seconds = began.elapsed().as_secs_f64();
    processes.watch(asked.settle, true);
    progress.clear();
    let (after, load) = (processes.now(), &asked.load);
    let result = json!({
        "product": format!("{:?}", asked.product), "programs": asked.programs, "upgrades": done, "refused": refused,
        "every": asked.every.as_secs_f64(), "seconds": seconds, "settle": asked.settle.as_secs_f64(),
        "transfer_seconds": load.transfer_seconds, "before": before, "after": after, "processes": processes.summary(),
        "clients": book.to_json(),
    });
    println!("{result:#}");
    Ok(())
}
