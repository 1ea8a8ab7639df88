//! From a command line to a serving process: read, bind, leave the terminal, give up rights, serve.
//!
//! The order matters. What needs rights (addresses, the pid file, `chroot`) comes before they are given up; forking comes
//! before the first thread; and the process that was started ends only when the daemon serves, or says why it does not.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use baton_config::{Diagnostic, Loaded, Options, Severity};
use baton_control::health;
use baton_control::reload::{self, Ready};
use baton_control::{ChangeLine, Control, Messages, Outside, ServiceManager, Settings};
use baton_kernel::process::daemon::{Daemonized, daemonize};
use baton_kernel::process::limits::OpenFiles;
use baton_kernel::process::pid_file::PidFile;
use baton_kernel::process::privileges::{Identity, change_root, drop_to};
use baton_kernel::process::{cpus, ignore_sigpipe};
use baton_model::{Global, Level, Model};

use crate::arguments::Run;
use crate::texts::VERSION;

/// Exit code of a check that finds no fault and nothing to serve.
const NO_LISTENER: u8 = 2;
/// The most threads; HAProxy's limit too.
const THREADS_MAX: usize = 64;

/// Checks, or serves until told to stop.
pub fn run(program: &str, run: Run) -> ExitCode {
    let messages = Rc::new(Messages::new(program, VERSION, run.quiet));
    match start(run, messages) {
        Ok(code) => ExitCode::from(code),
        Err(Stop { messages, text }) => {
            if let Some(text) = text {
                messages.alert(&text);
            }
            ExitCode::FAILURE
        }
    }
}

/// The end of a start that failed: what is left to say.
struct Stop {
    messages: Rc<Messages>,
    text: Option<String>,
}

fn start(run: Run, messages: Rc<Messages>) -> Result<u8, Stop> {
    if let Some(directory) = &run.directory
        && let Err(error) = std::env::set_current_dir(directory)
    {
        let text = format!("Could not change to directory {} : {}", directory.display(), plain(&error));
        return Err(Stop { messages, text: Some(text) });
    }
    let outside = match look_outside(&run.options) {
        Ok(outside) => outside,
        Err(error) => return Err(Stop { messages, text: Some(format!("cannot look around: {error}")) }),
    };
    let loaded = reload::read(&run.options, &outside);
    messages.diagnostics(&loaded.diagnostics);
    let Some(model) = &loaded.model else {
        let text = (!is_about_a_missing_file(&loaded.diagnostics))
            .then(|| "config : Fatal errors found in configuration.".into());
        return Err(Stop { messages, text });
    };
    if model.global.quiet && !run.check {
        messages.be_quiet();
    }
    if run.check {
        return Ok(say_checked(&run, &loaded));
    }
    let model = Arc::new(loaded.model.expect("looked at above"));
    notices(&run, &model, &messages);
    serve(run, model, outside, messages)
}

/// What `-c` says of a file without faults.
fn say_checked(run: &Run, loaded: &Loaded) -> u8 {
    let say = |text: &str| {
        if !run.quiet {
            println!("{text}");
        }
    };
    if loaded.of(Severity::Warning).next().is_some() {
        say("Warnings were found.");
    }
    if !loaded.model.as_ref().is_some_and(reload::has_listener) {
        say("Configuration file has no error but will not start (no listener) => exit(2).");
        return NO_LISTENER;
    }
    say("Configuration file is valid");
    0
}

/// What was asked for and is done in another way than by HAProxy.
fn notices(run: &Run, model: &Model, messages: &Messages) {
    let by_file = model.global.master_worker.then(|| "'master-worker'".to_owned());
    if let Some(word) = run.master_worker.clone().or(by_file) {
        messages.notice(&format!(
            "{word}: there is no master; one process serves and changes its configuration in place (SIGUSR2 or `baton reload`)."
        ));
    }
    for flag in &run.without_effect {
        messages.notice(&format!("option '{flag}' has no effect."));
    }
}

/// Binds, daemonizes, gives up rights, and runs the change line.
fn serve(run: Run, model: Arc<Model>, outside: Outside, messages: Rc<Messages>) -> Result<u8, Stop> {
    if !reload::has_listener(&model) {
        let text = "[haproxy.main()] No enabled listener found (check for 'bind' directives) ! Exiting.";
        return Err(Stop { messages, text: Some(text.into()) });
    }
    if let Err(error) = ignore_sigpipe() {
        return Err(Stop { messages, text: Some(format!("cannot ignore SIGPIPE: {error}")) });
    }
    raise_descriptor_limit(&model.global, &messages);
    let started_as = nix::unistd::geteuid().as_raw();
    let cores = cores(&model.global);
    let mut line = ChangeLine::new(cores, Instant::now(), say_health(messages.clone()));
    let ready = match line.prepare(model.clone(), &outside, Instant::now()) {
        Ok(ready) => ready,
        Err(reasons) => {
            for reason in reasons {
                messages.alert(&reason.to_string());
            }
            let text = "[haproxy.main()] Some protocols failed to start their listeners! Exiting.";
            return Err(Stop { messages, text: Some(text.into()) });
        }
    };
    let pid_path = run.pid_file.clone().or_else(|| model.global.pidfile.clone());
    let pid_file = match pid_path.as_deref().map(open_pid_file).transpose() {
        Ok(pid_file) => pid_file,
        Err(text) => return Err(Stop { messages, text: Some(text) }),
    };
    let is_under_systemd = run.master_worker.as_deref() == Some("-Ws");
    let is_daemon = (run.daemon || model.global.daemon && !is_under_systemd) && !run.foreground;
    // Before the daemon leaves for a root directory of its own.
    let notify_socket = std::env::var_os("NOTIFY_SOCKET").filter(|_| is_under_systemd);
    let manager = ServiceManager::connect(notify_socket.as_deref()).unwrap_or_else(|error| {
        messages.warning(&format!("the service manager is not told how we are: {error}"));
        ServiceManager::default()
    });
    let daemon = match is_daemon.then(daemonize).transpose() {
        Ok(None) => None,
        Ok(Some(Daemonized::Parent(waiting))) => {
            let code = waiting.wait();
            // The daemon's sockets must not be touched by destructors here: it has them too.
            std::process::exit(code);
        }
        Ok(Some(Daemonized::Child(child))) => Some(child),
        Err(error) => return Err(Stop { messages, text: Some(format!("[haproxy.main()] Cannot fork: {error}")) }),
    };
    if let Some(mut pid_file) = pid_file
        && let Err(error) = pid_file.write(&[std::process::id() as i32])
    {
        messages.warning(&format!("cannot write the pid file: {error}"));
    }
    if let Err(text) = give_up_rights(&model.global) {
        return Err(Stop { messages, text: Some(text) });
    }
    let settings = Settings {
        options: run.options,
        outside,
        version: VERSION.into(),
        manager,
        may_ask: vec![started_as, nix::unistd::geteuid().as_raw()],
    };
    let announce = move || {
        if let Some(daemon) = daemon
            && let Err(error) = daemon.ready(true)
        {
            eprintln!("[WARNING]  ({}) : {error}", std::process::id());
        }
    };
    live(settings, line, ready, messages, announce)
}

fn live(
    settings: Settings,
    line: ChangeLine,
    ready: Ready,
    messages: Rc<Messages>,
    announce: impl FnOnce(),
) -> Result<u8, Stop> {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().thread_name("baton/files").build() {
        Ok(runtime) => runtime,
        Err(error) => return Err(Stop { messages, text: Some(format!("cannot start: {error}")) }),
    };
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let spare = messages.clone();
        let control = match Control::start(settings, line, ready, messages).await {
            Ok(control) => control,
            Err(text) => return Err(Stop { messages: spare, text: Some(text) }),
        };
        control.run(announce).await.map_err(|error| Stop { messages: spare, text: Some(error.to_string()) })
    })
}

/// Health checks speak to standard error and to the log of their backend.
fn say_health(messages: Rc<Messages>) -> impl Fn(health::Event) {
    move |event| {
        let level = match event.severity {
            health::Severity::Emergency => {
                messages.alert(&event.text);
                Level(0)
            }
            health::Severity::Alert => {
                messages.warning(&event.text);
                Level(1)
            }
            health::Severity::Notice => {
                messages.warning(&event.text);
                Level(5)
            }
        };
        messages.log_for(&event.backend, level, &event.text);
    }
}

/// Where files are found from now on: the working directory and the root of this moment, and standard input if it is read.
fn look_outside(options: &Options) -> std::io::Result<Outside> {
    let reads_input = options.files.iter().any(|file| file == Path::new("-"));
    let input = reads_input.then(|| {
        use std::io::Read;
        let mut content = Vec::new();
        std::io::stdin().lock().take(baton_config::MAX_FILE_BYTES + 1).read_to_end(&mut content).map(|_| content)
    });
    Outside::new(std::env::current_dir()?, input.transpose()?)
}

/// `nbthread`, or one thread for each processor we may use.
fn cores(global: &Global) -> usize {
    let asked = global.nbthread.map(|threads| threads as usize);
    let usable = || cpus::usable().map_or(1, |cpus| cpus.len());
    asked.unwrap_or_else(usable).clamp(1, THREADS_MAX)
}

/// `ulimit-n`, or what `maxconn` needs, or as much as the system gives.
fn raise_descriptor_limit(global: &Global, messages: &Messages) {
    let for_connections = global.maxconn.map(|maxconn| u64::from(maxconn) * 2 + 1024);
    let wanted = global.ulimit_n.or(for_connections);
    let hard = OpenFiles::now().map_or(1024, |limit| limit.hard);
    match OpenFiles::raise(wanted.unwrap_or(hard)) {
        Ok(limit) if wanted.is_some_and(|wanted| limit.soft < wanted) => messages.warning(&format!(
            "[haproxy.main()] Cannot raise FD limit to {}, limit is {}.",
            wanted.unwrap_or_default(),
            limit.soft
        )),
        Ok(_) => {}
        Err(error) => messages.warning(&format!("[haproxy.main()] Cannot raise FD limit: {error}")),
    }
}

fn open_pid_file(path: &Path) -> Result<PidFile, String> {
    PidFile::open(path).map_err(|_| format!("[haproxy.main()] Cannot create pidfile {}", path.display()))
}

/// `chroot`, `group`, `user`.
fn give_up_rights(global: &Global) -> Result<(), String> {
    if let Some(directory) = &global.chroot {
        let directory: &PathBuf = directory;
        change_root(directory)
            .map_err(|error| format!("[haproxy.main()] Cannot chroot({}): {}", directory.display(), plain(&error)))?;
    }
    if global.uid.is_none() && global.gid.is_none() {
        return Ok(());
    }
    let identity = Identity { uid: global.uid, gid: global.gid, groups: None };
    drop_to(&identity).map_err(|error| format!("[haproxy.main()] {error}"))
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
