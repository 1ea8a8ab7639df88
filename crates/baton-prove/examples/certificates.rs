//! A folder full of certificates, for the benchmarks and for trying things out.
//!
//! ```text
//! cargo run --release --package baton-prove --example certificates -- FOLDER COUNT [RENEWED] [rsa]
//! ```
//!
//! FOLDER gets `ca.pem`, which clients have to trust, `certs/site-00001.example.pem` and so on, each with its chain and its key,
//! and `renewed/` with other certificates for RENEWED of these names, evenly spread. The names of each: `site-00001.example`
//! and `*.site-00001.example`. Keys are on P-256, with `rsa` RSA of 2,048 bits.

use std::{fs, io, path::PathBuf, process::ExitCode};

use baton_prove::certificates::{Authority, KeyKind, write_sites};

const COUNT_MAX: usize = 200_000;

struct Options {
    folder: PathBuf,
    count: usize,
    renewed: usize,
    kind: KeyKind,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(options) = options(&words) else {
        eprintln!("usage: certificates FOLDER COUNT [RENEWED] [rsa]     (at most {COUNT_MAX}, RENEWED at most COUNT)");
        return ExitCode::from(2);
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("certificates: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(words: &[String]) -> Option<Options> {
    let (kind, words) = match words.split_last()? {
        (last, rest) if last == "rsa" => (KeyKind::Rsa2048, rest),
        _ => (KeyKind::P256, words),
    };
    let (folder, count, renewed) = match words {
        [folder, count] => (folder, count.parse().ok()?, 0),
        [folder, count, renewed] => (folder, count.parse().ok()?, renewed.parse().ok()?),
        _ => return None,
    };
    ((1..=COUNT_MAX).contains(&count) && renewed <= count).then(|| Options {
        folder: folder.into(),
        count,
        renewed,
        kind,
    })
}

fn run(options: &Options) -> io::Result<()> {
    let authority = Authority::new("Baton bench")?;
    let (first, again) = (options.folder.join("certs"), options.folder.join("renewed"));
    fs::create_dir_all(&first)?;
    fs::create_dir_all(&again)?;
    fs::write(options.folder.join("ca.pem"), authority.root_pem())?;
    let all: Vec<usize> = (1..=options.count).collect();
    write_sites(&authority, options.kind, &first, &all)?;
    let spread: Vec<usize> = (0..options.renewed).map(|place| 1 + place * options.count / options.renewed).collect();
    write_sites(&authority, options.kind, &again, &spread)
}
