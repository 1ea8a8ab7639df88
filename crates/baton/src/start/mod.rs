//! From a command line to a serving process: read, bind, leave the terminal, give up rights, serve.
//!
//! The order matters. What needs rights (addresses, the pid file, `chroot`) comes before they are given up; forking comes
//! before the first thread; and the process that was started ends only when the daemon serves, or says why it does not.

mod daemon;
mod inherit;
mod limits;
mod live;
mod master;
mod rights;
mod take_over;
mod worker;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use baton_config::{Diagnostic, Loaded, Options, Severity};
use baton_control::control::Begun;
use baton_control::control_socket::ControlSocket;
use baton_control::handover::taker::{TakeOver, Taken};
use baton_control::listeners::{Inherited, named_twice};
use baton_control::reload::{self, Configuration, Ready};
use baton_control::rights::Rights;
use baton_control::servant::Summons;
use baton_control::state_file::SavedStates;
use baton_control::tickets::wall_seconds;
use baton_control::{
    ChangeLine, Messages, Outside, ServiceManager, Settings, StartCommand, direct, early_signals, encryption,
    overrides, runtime, state_file,
};
use baton_kernel::cells::CellMemory;
use baton_kernel::output::{self, WriteMode, losses};
use baton_kernel::process::known::ProcessId;
use baton_kernel::process::{ignore_sigpipe, priority};
use baton_master::Resumed;
use baton_master::process::Program;
use baton_model::{EndedOverride, Model};
use baton_tls::tickets::TicketVault;

use crate::arguments::{Run, without_predecessors};
use crate::texts::VERSION;
use daemon::Terminal;

/// Exit code of a check that finds no fault and nothing to serve.
const NO_LISTENER: u8 = 2;

/// Who started this process, and how another one like it is started.
#[derive(Debug)]
pub struct Origin {
    /// The program and its arguments.
    pub program: Program,
    /// What our master said; `None` when we are no worker.
    pub summons: Option<Summons>,
    /// What this process was as another binary; `None` when it was just started.
    pub resumed: Option<Resumed>,
}

/// Checks, or serves until told to stop.
pub fn run(program: &str, run: Run, origin: Origin) -> ExitCode {
    if !run.check {
        output::set_mode(WriteMode::Brief);
        // The process that this one takes over from serves meanwhile. A refusal costs its requests some time, and nothing else.
        let _ = priority::let_cores_preempt();
    }
    let messages = Rc::new(Messages::new(program, VERSION, run.quiet));
    let last_words = origin.summons.as_ref().and_then(Summons::last_words);
    match start(run, origin, &messages) {
        Ok(code) => ExitCode::from(code),
        Err(Stop { text }) => {
            if let Some(text) = text {
                messages.alert(&text);
            }
            if let Some(last_words) = last_words {
                last_words.say(&messages.startup());
            }
            ExitCode::FAILURE
        }
    }
}

/// The end of a start that failed.
#[derive(Debug)]
struct Stop {
    /// What is left to say; `None` when everything was said.
    text: Option<String>,
}

impl From<String> for Stop {
    fn from(text: String) -> Stop {
        Stop { text: Some(text) }
    }
}

fn start(mut run: Run, mut origin: Origin, messages: &Rc<Messages>) -> Result<u8, Stop> {
    if run.check {
        early_signals::come().map_err(|error| format!("cannot unblock signals: {error}"))?;
    }
    // Workers begin where their master is.
    let is_new = origin.summons.is_none() && origin.resumed.is_none();
    if let Some(directory) = run.directory.as_ref().filter(|_| is_new) {
        std::env::set_current_dir(directory)
            .map_err(|error| format!("Could not change to directory {} : {}", directory.display(), plain(&error)))?;
    }
    if origin.summons.as_ref().is_some_and(|summons| !summons.begin.is_first) {
        // Whom the first worker took over from is gone.
        run.old_socket = None;
        run.take_over.pids.clear();
    }
    if let Some(before) = origin.summons.as_ref().and_then(|summons| summons.begin.take_over) {
        run.take_over = TakeOver { pids: vec![before], is_masters: true, ..TakeOver::default() };
    }
    let outside = look_outside(&run.options, &mut origin)
        .map_err(|error| format!("cannot read the working directory: {error}"))?;
    let has_numbers = origin.summons.as_ref().is_some_and(Summons::has_numbers);
    let outside = match run.take_over.pids.is_empty() && !has_numbers {
        true => outside,
        false => outside.expecting_descriptors(),
    };
    if let Some(resumed) = origin.resumed.take() {
        return master::resume(&run, &origin, resumed, &outside.regular_only(), messages);
    }
    let view = worker::view(&outside, origin.summons.as_ref(), messages);
    let loaded = reload::read(&run.options, &view);
    let is_said = loaded.model.is_some() && origin.summons.as_ref().is_some_and(|summons| summons.begin.is_first);
    if !is_said {
        messages.diagnostics(&loaded.diagnostics);
    }
    let Some(model) = &loaded.model else {
        let text = (!is_about_a_missing_file(&loaded.diagnostics))
            .then(|| "config : Fatal errors found in configuration.".into());
        return Err(Stop { text });
    };
    if model.global.quiet && !run.check {
        messages.be_quiet();
    }
    if run.check {
        let mut warned = loaded.of(Severity::Warning).next().is_some();
        match loaded.model.as_ref().map(|model| encryption::judge(model, &view)) {
            Some(Ok(notes)) => {
                notes.iter().for_each(|note| messages.note(note));
                warned |= notes.iter().any(|(severity, _)| *severity == Severity::Warning);
            }
            Some(Err(reasons)) => {
                reasons.iter().for_each(|reason| messages.alert(&format!("config : {reason}")));
                return Err(Stop { text: Some("config : Fatal errors found in configuration.".into()) });
            }
            None => {}
        }
        let twice = loaded.model.as_ref().map(named_twice).unwrap_or_default();
        if !twice.is_empty() {
            twice.iter().for_each(|reason| messages.alert(&format!("config : {reason}")));
            return Err(Stop { text: Some("config : Fatal errors found in configuration.".into()) });
        }
        match loaded.model.as_ref().map(direct::judge) {
            Some(Ok(notes)) => {
                warned |= !notes.is_empty();
                notes.iter().for_each(|note| messages.warning(&format!("config : {note}.")));
            }
            Some(Err(reasons)) => {
                reasons.iter().for_each(|reason| messages.alert(&format!("config : {reason}")));
                return Err(Stop { text: Some("config : Fatal errors found in configuration.".into()) });
            }
            None => {}
        }
        if let Some(model) = &loaded.model {
            let states = state_file::read(model, &view, wall_seconds());
            warned |= !states.warnings.is_empty();
            states.warnings.iter().for_each(|warning| messages.warning(&format!("config : {warning}")));
        }
        return Ok(say_checked(&run, &loaded, warned));
    }
    let configuration = Configuration::asked(Arc::new(loaded.model.expect("looked at above")), Arc::new(loaded.rules));
    if origin.summons.is_none() {
        notices(&run, messages);
        if master::is_wanted(&run, &configuration.model) {
            return master::supervise(&run, &configuration.model, &origin, outside, messages);
        }
    }
    serve(run, configuration, Views { outside, view }, origin, messages)
}

/// How files are seen.
#[derive(Debug)]
struct Views {
    /// As they are at any moment.
    outside: Outside,
    /// By the first reading.
    view: Outside,
}

/// What `-c` says of a file without faults.
fn say_checked(run: &Run, loaded: &Loaded, warned: bool) -> u8 {
    let say = |text: &str| {
        if !run.quiet {
            output::print(&format!("{text}\n"));
        }
    };
    if warned {
        say("Warnings were found.");
    }
    if !loaded.model.as_ref().is_some_and(reload::has_listener) {
        say("Configuration file has no error but will not start (no listener) => exit(2).");
        return NO_LISTENER;
    }
    say(match loaded.is_partial {
        true => "Configuration file is valid without the lines that were left out",
        false => "Configuration file is valid",
    });
    0
}

/// What was asked for and is done in another way than by HAProxy.
fn notices(run: &Run, messages: &Messages) {
    for (flag, why) in &run.without_effect {
        messages.notice(&format!("option '{flag}' has no effect: {why}."));
    }
}

/// Binds, daemonizes, gives up rights, and runs the change path.
fn serve(
    run: Run,
    configuration: Configuration,
    views: Views,
    mut origin: Origin,
    messages: &Rc<Messages>,
) -> Result<u8, Stop> {
    // While relative names can still be told from absolute ones.
    let started_by = start_command(&run, &origin.program);
    let model = configuration.model.clone();
    if !reload::has_listener(&model) {
        let text = "[haproxy.main()] No enabled listener found (check for 'bind' directives) ! Exiting.";
        return Err(Stop { text: Some(text.into()) });
    }
    ignore_sigpipe().map_err(|error| format!("cannot ignore SIGPIPE: {error}"))?;
    let cores = limits::cores(&model.global);
    limits::look_at_processors(&model.global, cores, messages);
    limits::raise_descriptors(&model, cores, messages)?;
    let started_as = nix::unistd::geteuid().as_raw();
    let Views { outside, view } = views;
    let mut taken = take_over::take(&run, &model, messages)?;
    let mut inherited = inherit::sockets(&run, &model, messages)?;
    let tables = origin.summons.as_mut().map(|summons| std::mem::take(&mut summons.tables)).unwrap_or_default();
    let earlier = origin.summons.as_mut().map(|summons| std::mem::take(&mut summons.earlier)).unwrap_or_default();
    let before = origin.summons.as_mut().map(|summons| std::mem::take(&mut summons.memory)).unwrap_or_default();
    // A worker that replaces another one goes on from what its master remembers.
    let is_first = origin.summons.as_ref().is_none_or(|summons| summons.begin.is_first);
    let (held, summoned) = origin.summons.map(Summons::into_parts).unzip();
    inherited.extend(held.unwrap_or_default());
    let first = worker::with_addresses_before(&model, &earlier, &inherited, &run.options, &outside);
    let first = first.map(|model| Configuration::asked(model, configuration.rules.clone()));
    let all = first.iter().chain([&configuration]);
    // A worker that gives what it has is asked, not what its master remembers of it.
    let is_taken = taken.as_ref().is_some_and(|taken| !taken.states.is_empty());
    let overrides = if is_taken { &[][..] } else { &before.overrides[..] };
    let is_first = is_first && !is_taken && before.overrides.is_empty();
    let saved = if is_first { saved_states(&model, &outside, messages) } else { SavedStates::default() };
    let overrides = if is_first { &saved.memory.overrides[..] } else { overrides };
    let memory = Arc::new(counting_memory(summoned.is_some(), messages));
    losses::count_in(&memory);
    let tables = if is_taken { Vec::new() } else { tables };
    let given = (inherited, overrides, tables);
    let (mut line, ready) = bind(all, (cores, memory), given, taken.as_mut(), &view, messages)?;
    if !before.tickets.is_empty() {
        line.recall_tickets(&before.tickets);
    }
    if saved.servers > 0 {
        // What was set under another configuration ends without a word, as in HAProxy.
        line.recall_saved(&ready, &saved.memory, Instant::now());
    } else if !overrides.is_empty() {
        say_ended(&line.recall_overrides(&ready), messages);
    }
    if !is_taken {
        line.recall_crashed(&ready, &before, Instant::now());
    }
    let manager = if summoned.is_some() { ServiceManager::default() } else { service_manager(&run, messages) };
    let before = taken.as_ref().map(Taken::pids).unwrap_or_default();
    let terminal = match &summoned {
        Some(summoned) => Terminal::of_worker(summoned),
        None => daemon::leave(&run, &model.global, &before, messages)?,
    };
    let open = line.open(ready).map_err(|refused| refused.to_string())?;
    take_over::keep_right(taken.as_mut(), &model.global, messages);
    // Whoever connects sees as whom we were started, and finds us in a directory that the user of later may not write to.
    let mut socket = ControlSocket::open().map_err(|error| {
        format!("cannot open the control socket: {error}: set BATON_RUN_DIR to a directory that you own")
    })?;
    socket.notices.drain(..).for_each(|notice| messages.notice(&notice));
    let known = ProcessId::own();
    rights::give_up(&model.global, messages)?;
    let outside = outside.regular_only();
    let mut starters = vec![started_as];
    starters.extend(summoned.iter().flat_map(|summoned| &summoned.begin.may_ask));
    let rights = Rights { starters, runs_as: nix::unistd::geteuid().as_raw() };
    let settings =
        Settings { options: run.options, started_by, outside, version: VERSION.into(), manager, rights, known };
    let begun = summoned.map(|summoned| {
        let (text, then) = (view.record(), first.map(|_| (configuration, view)));
        Begun { summoned, text, then }
    });
    live::live(live::LiveProcess { settings, socket }, line, open, begun, taken, messages, || terminal.serving())
}

/// What files of server states say, which nobody knows better.
fn saved_states(model: &Model, view: &Outside, messages: &Rc<Messages>) -> SavedStates {
    let saved = state_file::read(model, view, wall_seconds());
    saved.warnings.iter().for_each(|warning| messages.warning(&format!("config : {warning}")));
    if saved.servers > 0 {
        messages.notice(&format!("the states of {} servers are those of the server state file.", saved.servers));
    }
    saved
}

/// Where to count: under a master in memory that it keeps, for a worker after a crash.
fn counting_memory(has_master: bool, messages: &Rc<Messages>) -> CellMemory {
    if !has_master {
        return CellMemory::private();
    }
    CellMemory::shared().unwrap_or_else(|error| {
        messages.warning(&format!(
            "counters will restart from zero if this worker crashes: cannot create a memory file: {error}"
        ));
        CellMemory::private()
    })
}

/// Takes or opens everything that the configuration names, and goes on from what another process remembers. The last of the
/// configurations is the one that counts.
fn bind<'a>(
    configurations: impl Iterator<Item = &'a Configuration> + Clone,
    (cores, memory): (usize, Arc<CellMemory>),
    (inherited, overrides, mut tables): (Inherited, &[overrides::OverrideRecord], Vec<(String, OwnedFd)>),
    mut taken: Option<&mut Taken>,
    outside: &Outside,
    messages: &Rc<Messages>,
) -> Result<(ChangeLine, Ready), Stop> {
    let tickets =
        TicketVault::new(wall_seconds()).map_err(|fault| format!("cannot create a session ticket key: {fault}"))?;
    let mut line = ChangeLine::new(
        cores,
        memory,
        tickets,
        runtime::commands(),
        Instant::now(),
        live::say_health(messages.clone()),
    );
    line.inherit(inherited);
    line.expect_overrides(overrides);
    if let Some(taken) = &mut taken {
        line.inherit(std::mem::take(&mut taken.sockets));
        taken.states.iter().for_each(|(_, state)| line.expect_overrides(&state.overrides));
        tables.append(&mut taken.tables);
    }
    line.inherit_tables(tables).iter().for_each(|text| messages.warning(&format!("{text}.")));
    let attempt = |line: &mut ChangeLine| {
        let mut outcome = Err(Vec::new());
        for configuration in configurations.clone() {
            outcome = line.prepare(configuration.clone(), outside, Instant::now());
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    };
    match take_over::prepare(&mut line, taken.as_deref_mut(), attempt) {
        Ok(ready) => {
            ready.notes().iter().for_each(|note| messages.note(note));
            ready.table_losses().iter().for_each(|text| messages.warning(&format!("{text}.")));
            ready.left_out.iter().for_each(|text| messages.warning(&format!("{text}.")));
            for (_, state) in taken.iter().flat_map(|taken| &taken.states) {
                let ended = line.recall(&ready, state, Instant::now());
                say_ended(&ended, messages);
            }
            Ok((line, ready))
        }
        Err(reasons) => {
            for reason in reasons {
                messages.alert(&reason.to_string());
            }
            Err("[haproxy.main()] Some protocols failed to start their listeners! Exiting.".to_owned().into())
        }
    }
}

/// The command line, for the command that starts a successor. Names that are relative are so to this directory.
fn start_command(run: &Run, program: &Program) -> StartCommand {
    let mut names = run.options.files.iter().chain(&run.pid_file);
    let is_relative = match &run.directory {
        Some(directory) => directory.is_relative(),
        None => names.any(|name| name.is_relative() && name != Path::new("-")),
    };
    StartCommand {
        directory: is_relative.then(|| std::env::current_dir().ok()).flatten(),
        program: program.path().to_owned(),
        arguments: without_predecessors(program.arguments()),
    }
}

/// What operators had set and the file ends.
fn say_ended(ended: &[EndedOverride], messages: &Messages) {
    overrides::named(ended.iter().map(|ended| format!("{ended}."))).iter().for_each(|line| messages.notice(line));
}

/// Whom to tell how we are. To be connected before the process leaves for a root directory of its own.
fn service_manager(run: &Run, messages: &Messages) -> ServiceManager {
    let socket = std::env::var_os("NOTIFY_SOCKET").filter(|_| is_under_systemd(run));
    ServiceManager::connect(socket.as_deref()).unwrap_or_else(|error| {
        messages.warning(&format!("cannot notify the service manager: {error}"));
        ServiceManager::default()
    })
}

/// `-Ws`.
fn is_under_systemd(run: &Run) -> bool {
    run.master_worker.as_deref() == Some("-Ws")
}

/// Where files are found from now on: the working directory and the root of this moment, and standard input if it is read.
fn look_outside(options: &Options, origin: &mut Origin) -> std::io::Result<Outside> {
    if let Some(summons) = &mut origin.summons {
        return Outside::new(std::env::current_dir()?, summons.input.take());
    }
    if origin.resumed.is_some() {
        return Outside::new(std::env::current_dir()?, None);
    }
    let reads_input = options.files.iter().any(|file| file == Path::new("-"));
    let input = reads_input.then(|| {
        use std::io::Read;
        let mut content = Vec::new();
        std::io::stdin().lock().take(baton_config::MAX_FILE_BYTES + 1).read_to_end(&mut content).map(|_| content)
    });
    Outside::new(std::env::current_dir()?, input.transpose()?)
}

/// HAProxy says nothing more after a file that cannot be opened.
fn is_about_a_missing_file(diagnostics: &[Diagnostic]) -> bool {
    let mut alerts = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Alert);
    alerts.all(|diagnostic| diagnostic.line == 0)
}

/// A system's error without its number.
fn plain(error: &std::io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |number| nix::errno::Errno::from_raw(number).desc().into())
}
