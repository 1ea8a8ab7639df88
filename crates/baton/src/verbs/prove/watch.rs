//! Does experiments one after the other, shows how each goes, and ends on Ctrl-C.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use baton_prove::Progress;
use baton_prove::experiment::{self, Moment, Setting};
use baton_prove::proof::{Machine, Proof};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::choose::ChosenExperiment;
use crate::interrupt::Interrupt;

/// Does all of them.
///
/// # Errors
/// A sentence, when it cannot begin.
pub fn play(title: String, chosen: &[ChosenExperiment], setting: &Setting<'_>) -> Result<Proof, String> {
    let plain = |error: io::Error| format!("cannot start: {error}");
    let mut proof = Proof {
        title,
        command: typed(std::env::args()),
        started: now(),
        machine: Machine::here(),
        rows: Vec::new(),
        interrupted: false,
    };
    let (ask, stop) = watch::channel(false);
    listen(ask).map_err(plain)?;
    let progress = Mutex::new(Progress::stderr());
    for (number, one) in chosen.iter().enumerate() {
        let head = format!("[{}/{}] {} on {}", number + 1, chosen.len(), one.experiment.name, one.server().name);
        let begun = AtomicBool::new(false);
        let show = |moment: Moment| {
            let Ok(mut progress) = progress.lock() else { return };
            if moment.load.requests > 0 && !begun.swap(true, Ordering::Relaxed) {
                progress.note(&head);
            }
            progress.show(Instant::now(), || line(&head, &moment));
        };
        let mut row = experiment::run(&one.experiment, one.server(), setting, stop.clone(), &show);
        row.articles.clone_from(&one.articles);
        row.group.clone_from(&one.group);
        proof.rows.push(row);
        if *stop.borrow() {
            proof.interrupted = true;
            break;
        }
    }
    if let Ok(mut progress) = progress.lock() {
        progress.clear();
    }
    Ok(proof)
}

/// From now on Ctrl-C, SIGTERM and the end of the terminal ask for the end: what was started must not stay behind.
fn listen(ask: watch::Sender<bool>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut hangup) =
        runtime.block_on(async { io::Result::Ok((Interrupt::listen()?, signal(SignalKind::hangup())?)) })?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = interrupt.next() => {}
                _ = hangup.recv() => {}
            }
        });
        ask.send_replace(true);
        // The end takes its time, and who asks for it again gets no other one: what was started must be ended.
        runtime.block_on(std::future::pending::<()>());
    })?;
    Ok(())
}

fn line(head: &str, moment: &Moment) -> String {
    let Some(at) = moment.at else { return format!("{head}: starting") };
    let left = match moment.time.saturating_sub(at) {
        Duration::ZERO => {
            let ended = moment.load.completed + moment.load.failed();
            format!("{} requests to go", moment.requests.saturating_sub(ended))
        }
        left => format!("{:.0} s to go", left.as_secs_f64().ceil()),
    };
    let load = &moment.load;
    format!("{head}: {left}, {} requests, {} failed, {} events", load.requests, load.failed(), moment.events)
}

/// The command as one types it anywhere: the program by its name alone, for where it lies is of this machine.
fn typed(mut words: impl Iterator<Item = String>) -> String {
    let program = words.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    [name].into_iter().chain(words).map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn now() -> String {
    let now = jiff::Zoned::now();
    now.strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_again() {
        let words = ["target/release/baton", "a-b", "it's", "", "x y"].map(str::to_owned);
        assert_eq!(typed(words.into_iter()), r"baton a-b 'it'\''s' '' 'x y'");
    }
}
