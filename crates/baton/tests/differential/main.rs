//! The differential test: the same configuration file and the same bytes go to Debian's `haproxy` and to Baton, and what
//! clients received, what origins received and what was logged must be equal.
//!
//! ```text
//! cargo test -p baton --test differential -- [FILTER ..] [--list] [--exact] [--test-threads N]
//! ```
//!
//! Cases are text: `cases/*.case` for one behaviour each, `whole/*.case` and `provisioned.rs` for configurations as people have them, in the
//! language that `case.rs` describes. `differences.toml` lists the accepted
//! differences with their reasons; a listed case that does not differ any more fails as well, so the list stays true.
//!
//! - `BATON_BIN` names another second program; `/usr/sbin/haproxy` there compares haproxy with itself (the list of accepted
//!   differences is then not used), which shows that the cases do not depend on luck.
//! - `DIFFERENTIAL_SHOW=1` prints what haproxy did in each case.
//! - Without `/usr/sbin/haproxy` every case is skipped, and that is said.

mod case;
mod client;
mod differences;
mod generate;
mod http;
mod http2;
mod http2_origin;
mod injection;
mod normal;
mod origin;
mod places;
mod program;
mod provisioned;
mod record;
mod report;
mod run;
mod script;
mod secure;
mod world;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use case::Case;
use record::Record;

/// The peer that Baton is compared with.
const REFERENCE: &str = "/usr/sbin/haproxy";

/// Cases run side by side; they mostly wait, so more than there are cores.
const THREADS: usize = 12;

/// What the command line asks for.
struct Options {
    filters: Vec<String>,
    exact: bool,
    list: bool,
    threads: usize,
}

/// How a case ended.
enum Verdict {
    Same,
    /// The machine lacks what the case needs.
    Skipped(&'static str),
    /// Differs, and `differences.toml` says why.
    Accepted(String),
    Failed(String),
}

fn main() -> ExitCode {
    let options = options();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential");
    let mut texts = provisioned::texts().to_vec();
    match injection::texts() {
        Ok(more) => texts.extend(more),
        Err(fault) => return refuse(&fault),
    }
    let cases = match case::load(&[&folder.join("cases"), &folder.join("whole")], &texts) {
        Ok(cases) => cases,
        Err(fault) => return refuse(&fault),
    };
    let accepted = match differences::load(&folder.join("differences.toml"), &cases) {
        Ok(accepted) => accepted,
        Err(fault) => return refuse(&fault),
    };
    let chosen: Vec<&Case> = cases.iter().filter(|case| options.chooses(&case.name)).collect();

    if options.list {
        for case in &chosen {
            println!("{}: test", case.name);
        }
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen.len());
    if !Path::new(REFERENCE).exists() {
        println!("SKIPPED: {REFERENCE} is not installed, so all {} differential cases were skipped", chosen.len());
        println!("\ntest result: ok. 0 passed; 0 failed; {} skipped", chosen.len());
        return ExitCode::SUCCESS;
    }
    run_all(&chosen, &accepted, options.threads)
}

fn run_all(cases: &[&Case], accepted: &BTreeMap<String, String>, threads: usize) -> ExitCode {
    let second = second_program();
    let with_itself = second == Path::new(REFERENCE);
    let started = Instant::now();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let (passed, differing, skipped) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));

    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let reason = accepted.get(&case.name).filter(|_| !with_itself);
                    let verdict = judge_fairly(case, &second, reason.map(String::as_str));
                    let word = match &verdict {
                        Verdict::Same => "ok".to_string(),
                        Verdict::Accepted(reason) => format!("ok (differs as listed: {reason})"),
                        Verdict::Skipped(why) => format!("SKIPPED: {why}"),
                        Verdict::Failed(_) => "FAILED".to_string(),
                    };
                    let _ = writeln!(std::io::stdout(), "test {} ... {word}", case.name);
                    match verdict {
                        Verdict::Same => _ = passed.fetch_add(1, Ordering::Relaxed),
                        Verdict::Skipped(_) => _ = skipped.fetch_add(1, Ordering::Relaxed),
                        Verdict::Accepted(_) => _ = differing.fetch_add(1, Ordering::Relaxed),
                        Verdict::Failed(text) => {
                            failures.lock().unwrap_or_else(|broken| broken.into_inner()).push((case.name.clone(), text))
                        }
                    }
                }
            });
        }
    });

    let mut failures = failures.into_inner().unwrap_or_else(|broken| broken.into_inner());
    failures.sort();
    for (name, text) in &failures {
        println!("\n---- {name} ----\n{text}");
    }
    if !failures.is_empty() {
        println!("\nfailures:");
        for (name, _) in &failures {
            println!("    {name}");
        }
    }
    let differing = differing.into_inner();
    println!(
        "\ntest result: {}. {} passed; {} failed; {} skipped; {differing} of the passed differ as listed; finished in {:.1}s",
        if failures.is_empty() { "ok" } else { "FAILED" },
        passed.into_inner() + differing,
        failures.len(),
        skipped.into_inner(),
        started.elapsed().as_secs_f64(),
    );
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How often a case that failed is run again.
const REPEATS_MAX: usize = 3;

/// Judges a case, and again when it failed, until haproxy behaves differently from the first time: then the first run compared Baton with
/// what haproxy does by chance. On a busy machine its transfers stall now and then until its own timeout ends them with a 504. A
/// failure beside a haproxy that does the same every time stands.
fn judge_fairly(case: &Case, second: &Path, accepted: Option<&str>) -> Verdict {
    let (first, before) = judge(case, second, accepted);
    let (Verdict::Failed(_), Some(before)) = (&first, before) else { return first };
    for _ in 0..REPEATS_MAX {
        let (again, after) = judge(case, second, accepted);
        if let Some(difference) = after.and_then(|after| report::difference(&before, &after)) {
            let _ = writeln!(std::io::stdout(), "{}: repeated, as haproxy itself differs:\n{difference}", case.name);
            return again;
        }
    }
    first
}

/// Runs `case` on both programs at once and compares. With what haproxy did, when it ran.
fn judge(case: &Case, second: &Path, accepted: Option<&str>) -> (Verdict, Option<Record>) {
    if case.has("ipv6") && std::net::TcpListener::bind("[::1]:0").is_err() {
        return (Verdict::Skipped("this machine has no IPv6"), None);
    }
    let started = Instant::now();
    let (ours, theirs) = thread::scope(|scope| {
        let ours = scope.spawn(|| run::run(case, second));
        let theirs = run::run(case, Path::new(REFERENCE));
        (ours.join(), theirs)
    });
    if case.has("injection") {
        return (judge_injection(case, ours, theirs), None);
    }
    let theirs = match theirs {
        Ok(record) => record,
        Err(fault) => return (Verdict::Failed(format!("the case does not work with haproxy: {fault}")), None),
    };
    if std::env::var_os("DIFFERENTIAL_SHOW").is_some() {
        let _ = writeln!(std::io::stdout(), "==== {} ==== {:?}\n{}", case.name, started.elapsed(), theirs.text());
    }
    if let Some(fault) = theirs.fault(case) {
        let text = format!("the case does not show what it says with haproxy: {fault}\n{}", theirs.text());
        return (Verdict::Failed(text), Some(theirs));
    }
    let difference = match ours {
        Ok(Ok(ours)) => report::difference(&theirs, &ours),
        Ok(Err(fault)) => Some(fault),
        Err(_) => Some("the test harness panicked".to_string()),
    };
    let verdict = match (difference, accepted) {
        (None, None) => Verdict::Same,
        (Some(_), Some(reason)) => Verdict::Accepted(reason.to_string()),
        (Some(difference), None) => Verdict::Failed(format!("{}{difference}", case.head())),
        (None, Some(reason)) => Verdict::Failed(format!(
            "listed in differences.toml, but nothing differs any more; take it off the list. The reason was: {reason}"
        )),
    };
    (verdict, Some(theirs))
}

/// Judges a case of `injection.rs`: what the second program did must be whole. Whether haproxy did the same does not matter; it need not know
/// the action at all.
fn judge_injection(
    case: &Case,
    ours: thread::Result<Result<Record, String>>,
    theirs: Result<Record, String>,
) -> Verdict {
    if std::env::var_os("DIFFERENTIAL_SHOW").is_some()
        && let Ok(theirs) = &theirs
    {
        let _ = writeln!(std::io::stdout(), "==== {} ====\n{}", case.name, theirs.text());
    }
    match ours {
        Ok(Ok(ours)) => match injection::split(&ours).or_else(|| ours.fault(case)) {
            Some(fault) => Verdict::Failed(format!("{fault}\n\nof all this:\n{}", ours.text())),
            None => Verdict::Same,
        },
        Ok(Err(fault)) => Verdict::Failed(fault),
        Err(_) => Verdict::Failed("the test harness panicked".to_string()),
    }
}

fn second_program() -> PathBuf {
    std::env::var_os("BATON_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_baton")), PathBuf::from)
}

fn refuse(fault: &str) -> ExitCode {
    eprintln!("differential: {fault}");
    ExitCode::FAILURE
}

/// The arguments that `cargo test` users expect; those that mean nothing here are accepted.
fn options() -> Options {
    let mut options = Options { filters: Vec::new(), exact: false, list: false, threads: THREADS };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--list" => options.list = true,
            "--exact" => options.exact = true,
            "--test-threads" => options.threads = words.next().and_then(|n| n.parse().ok()).unwrap_or(THREADS),
            "--format" | "--color" | "--logfile" | "-Z" | "--skip" => _ = words.next(),
            word if word.starts_with("--test-threads=") => {
                options.threads = word["--test-threads=".len()..].parse().unwrap_or(THREADS)
            }
            word if word.starts_with('-') => {}
            word => options.filters.push(word.to_string()),
        }
    }
    options.threads = options.threads.clamp(1, 64);
    options
}

impl Options {
    fn chooses(&self, name: &str) -> bool {
        self.filters.is_empty()
            || self
                .filters
                .iter()
                .any(|wanted| if self.exact { name == wanted } else { name.contains(wanted.as_str()) })
    }
}
