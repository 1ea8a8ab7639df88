//! `-W`, `-Ws`, `master-worker`: this process becomes the master, and a worker of its own serves.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use baton_config::values;
use baton_control::{Messages, Outside, ServiceManager, reload};
use baton_kernel::output::{self, WriteMode};
use baton_kernel::process::limits::OpenFiles;
use baton_master::cli::{self, Cli};
use baton_master::opening::Reading;
use baton_master::{Resumed, Setup};
use baton_model::Model;

use super::{Origin, Stop, daemon, inherit, is_under_systemd};
use crate::arguments::Run;
use crate::texts::VERSION;
use baton_control::service_manager::watchdog_interval;

/// The variable that says how long a new worker may take until it serves, and its bounds.
const READY_WITHIN: &str = "BATON_READY_WITHIN";
const READY_LEAST: Duration = Duration::from_secs(1);
const READY_MOST: Duration = Duration::from_secs(3600);

/// How long a master that has become another binary waits for the files: it supervises meanwhile nobody.
const RESUMED_WITHIN: Duration = Duration::from_secs(10);

/// Whether a master was asked for.
pub(super) fn is_wanted(run: &Run, model: &Model) -> bool {
    run.master_worker.is_some() || model.global.master_worker
}

/// Leaves the terminal and supervises a worker until told to stop. The configuration has been judged; the worker reads it
/// for itself.
pub(super) fn supervise(
    run: &Run,
    model: &Model,
    origin: &Origin,
    outside: Outside,
    messages: &Rc<Messages>,
) -> Result<u8, Stop> {
    messages.apply(model);
    let ready_within = ready_within()?;
    let cli = open_cli(run)?;
    let terminal = daemon::leave(run, &model.global, &run.take_over.pids, messages)?;
    let reading = reading(run, &outside);
    let setup = Setup {
        ready_within,
        reading,
        input: outside.into_input(),
        is_detached: terminal.is_daemon(),
        cli,
        sockets: inherit::activated(messages)?.into_fds(),
        ..setup(run, origin, messages)
    };
    output::set_mode(WriteMode::Queue);
    Ok(baton_master::run(setup, None, || terminal.serving())?)
}

/// Goes on as the master that this process was before it became this binary. Its worker serves all the while, so the files
/// are looked at for the master's own words only, and may be wrong.
pub(super) fn resume(
    run: &Run,
    origin: &Origin,
    mut resumed: Resumed,
    outside: &Outside,
    messages: &Rc<Messages>,
) -> Result<u8, Stop> {
    let loaded = reload::read_within(&run.options, outside, RESUMED_WITHIN);
    if let Some(model) = loaded.and_then(|loaded| loaded.model) {
        messages.apply(&model);
        if model.global.quiet {
            messages.be_quiet();
        }
    }
    let cli = match (resumed.cli.take(), &run.master_socket) {
        (Some(fd), Some(argument)) => cli::parse(argument).and_then(|socket| Cli::adopt(fd, socket)).map(Some),
        _ => Ok(None),
    };
    let cli = cli.unwrap_or_else(|error| {
        messages.warning(&format!("the master's socket is lost: {error}"));
        None
    });
    let reading = reading(run, outside);
    // It was looked at by the program before.
    let ready_within = ready_within().unwrap_or_default();
    let setup =
        Setup { is_detached: resumed.is_detached(), cli, reading, ready_within, ..setup(run, origin, messages) };
    output::set_mode(WriteMode::Queue);
    Ok(baton_master::run(setup, Some(resumed), || ())?)
}

fn setup(run: &Run, origin: &Origin, messages: &Rc<Messages>) -> Setup {
    // For the sockets of the worker. One that the system does not give is missed, and told, when there are so many.
    let _ = OpenFiles::now().and_then(|limit| OpenFiles::raise(limit.hard));
    let var = |name: &str| std::env::var(name).ok().filter(|_| is_under_systemd(run));
    let manager = ServiceManager::connect(var("NOTIFY_SOCKET").map(Into::<std::ffi::OsString>::into).as_deref());
    let manager = manager.unwrap_or_else(|error| {
        messages.warning(&format!("cannot notify the service manager: {error}"));
        ServiceManager::default()
    });
    Setup {
        program: origin.program.clone(),
        version: VERSION.into(),
        messages: messages.clone(),
        manager,
        watchdog: watchdog_interval(var, std::process::id()),
        input: None,
        is_detached: false,
        cli: None,
        sockets: Vec::new(),
        reading: None,
        ready_within: None,
    }
}

/// What it says: a time such as `90s`, from one second to an hour; a number alone means seconds.
fn ready_within() -> Result<Option<Duration>, String> {
    let Some(text) = std::env::var_os(READY_WITHIN).filter(|text| !text.is_empty()) else { return Ok(None) };
    let text = text.to_string_lossy();
    match values::time(&text, values::Unit::Seconds) {
        Ok((time, "")) if (READY_LEAST..=READY_MOST).contains(&time) => Ok(Some(time)),
        _ => Err(format!("{READY_WITHIN}={text}: expected a time from 1s to 1h, such as 90s")),
    }
}

/// How a master that is root reads the files when its worker, which is not, asks for a new address.
fn reading(run: &Run, outside: &Outside) -> Option<Reading> {
    let outside = || Arc::new(outside.view().expecting_descriptors().regular_only());
    nix::unistd::geteuid().is_root().then(|| Reading { options: run.options.clone(), outside: outside() })
}

/// `-S`, before rights and terminal are given up.
fn open_cli(run: &Run) -> Result<Option<Cli>, Stop> {
    let Some(argument) = &run.master_socket else { return Ok(None) };
    let socket = cli::parse(argument)?;
    Ok(Some(Cli::open(socket).map_err(|reason| format!("-S {argument}: {reason}"))?))
}
