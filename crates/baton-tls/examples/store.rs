//! What the store costs: loads directories of certificates, then again, and prints CPU time and memory.
//!
//! `cargo run --release -p baton-tls --example store -- FOLDER…` (`--example certificates` of baton-prove makes a folder).

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use baton_model::{BindTls, CrtSource, Source};
use baton_tls::store::{Entry, SystemFiles, Wanted};
use baton_tls::{Store, Verifies};

fn main() {
    let paths = std::env::args_os().skip(1).map(PathBuf::from);
    let certificates = paths.map(|path| CrtSource::Crt { path, default: false }).collect();
    let tls = Arc::new(BindTls { certificates, ..BindTls::default() });
    let source = Source::default();
    let wanted = Wanted { binds: vec![(&tls, &source)], ..Wanted::default() };
    let store = Store::new();
    let before_kib = resident_kib();
    for round in ["first", "again"] {
        let (start, cpu) = (Instant::now(), cpu_s());
        let prepared = match store.prepare(&wanted, &SystemFiles::default()) {
            Ok(prepared) => prepared,
            Err(problems) => {
                problems.iter().take(20).for_each(|problem| eprintln!("{problem}: {}", problem.remedy()));
                std::process::exit(1);
            }
        };
        let index = prepared.indexes().remove(0);
        prepared.commit();
        let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_s() - cpu);
        let figures = store.figures();
        let each = cpu * 1e6 / figures.certificates as f64;
        println!("{round}: {wall:.3} s, {cpu:.3} s of CPU, {each:.1} µs each");
        if round == "first" {
            let kib = resident_kib() - before_kib;
            println!("{figures:?}: {:.2} KiB resident each", kib as f64 / figures.certificates as f64);
            let found = index.find(None, Verifies::ALL).expect("there is one");
            let start = Instant::now();
            found.signer().expect("its key signs");
            println!("first signer: {:.0} µs", start.elapsed().as_secs_f64() * 1e6);
            let names: Vec<String> = store.entries().iter().step_by(7).filter_map(|entry| first_name(entry)).collect();
            let start = Instant::now();
            let found = names.iter().filter(|name| index.find(Some(name), Verifies::ALL).is_some()).count();
            println!("found: {:.2} µs each", start.elapsed().as_secs_f64() * 1e6 / found as f64);
        }
    }
    let entries = store.entries();
    let start = Instant::now();
    for entry in entries.iter().rev().take(REPLACED) {
        let certificate = store.judge(entry.path(), &SystemFiles::default()).expect("it was read before");
        let mut change = store.transaction();
        change.set(entry.path(), certificate);
        store.commit(change);
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / entries.len().min(REPLACED) as f64;
    println!("replaced one by one: {each:.0} µs each");
}

fn first_name(entry: &Entry) -> Option<String> {
    let certificate = entry.certificate();
    let names = certificate.names();
    names.first().map(|name| String::from_utf8_lossy(name).into_owned())
}

/// How many are replaced.
const REPLACED: usize = 1000;

/// CPU time of all threads so far, in seconds.
fn cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) / 100.0
}

fn resident_kib() -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or_default()
}
