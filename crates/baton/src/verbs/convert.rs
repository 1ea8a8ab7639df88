//! `baton convert`: other programs' tables of virtual services as haproxy.cfg.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use baton_config::convert::{MAX_CONVERT_BYTES, Source, convert};
use clap::{Args, ValueEnum};

use super::say_line;

/// Convert virtual services of ipvsadm or keepalived into sections with `mode direct`.
///
/// Reads the output of `ipvsadm -Sn` or keepalived.conf. What is not converted exactly is reported on standard error and as comments
/// in the output, each with its line and the reason. The system is neither read nor changed. The exit code is 2 if some of the input was not understood
/// (`not read`), and 1 if nothing could be converted.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  ipvsadm -Sn | baton convert\n  baton convert /etc/keepalived/keepalived.conf -o direct.cfg"
)]
pub struct ConvertCommand {
    /// Input file [default: standard input, also `-`]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Input format [default: detected from the first line]
    #[arg(long, value_enum)]
    from: Option<From>,
    /// Output file [default: standard output]; an existing file is not overwritten
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum From {
    /// Output of `ipvsadm -Sn` and `ipvsadm-save -n`
    Ipvsadm,
    /// keepalived.conf
    Keepalived,
}

/// Exit code when some of the input was not understood; what was is written all the same.
const UNREAD: u8 = 2;

/// Reads, converts and writes. A remark is no failure, unless it is about what was not understood.
pub fn run(command: &ConvertCommand) -> Result<ExitCode, String> {
    let named = command.file.as_deref().filter(|file| *file != Path::new("-"));
    let name = named.map_or_else(|| "standard input".into(), |file| file.display().to_string());
    let text = read(named).map_err(|error| format!("cannot read {name}: {error}"))?;
    let source = command.from.map(|from| match from {
        From::Ipvsadm => Source::Ipvsadm,
        From::Keepalived => Source::Keepalived,
    });
    let converted = convert(&name, &text, source).map_err(|fault| format!("{name}: {fault}"))?;
    for remark in &converted.remarks {
        say_line(format_args!("baton: {name}: {remark}"));
    }
    write(command.output.as_deref(), &converted.config)?;
    let unread = converted.remarks.iter().filter(|remark| remark.is_unread()).count();
    if unread == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let lines = if unread == 1 { "1 place was" } else { &*format!("{unread} places were") };
    say_line(format_args!("baton: {name}: {lines} not understood: see the comments that begin with `not read`"));
    Ok(ExitCode::from(UNREAD))
}

/// At most one byte more than can be converted, so that what is too long is told of and not cut.
fn read(file: Option<&Path>) -> io::Result<Vec<u8>> {
    let most = MAX_CONVERT_BYTES as u64 + 1;
    let mut text = Vec::new();
    match file {
        Some(file) => File::open(file)?.take(most).read_to_end(&mut text)?,
        None => io::stdin().take(most).read_to_end(&mut text)?,
    };
    Ok(text)
}

fn write(file: Option<&Path>, config: &str) -> Result<(), String> {
    let Some(file) = file else {
        // Who reads no further has what it wants.
        let _ = io::stdout().write_all(config.as_bytes());
        return Ok(());
    };
    let opened = OpenOptions::new().write(true).create_new(true).open(file);
    let written = opened.and_then(|mut opened| opened.write_all(config.as_bytes()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => format!("{} exists already; choose another file", file.display()),
        _ => format!("cannot write {}: {error}", file.display()),
    })
}
