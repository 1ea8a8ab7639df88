//! What `-v`, `-vv` and a wrong command line print.

use baton_config::condition::{COMPATIBLE_VERSION, FEATURES};
use baton_config::missing::{FEATURES as FEATURES_LACKING, OTHERS};
use baton_control::Capacity;
use baton_model::Model;

use crate::verbs;

/// Baton's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether the BPF programs were compiled in.
const BPF: &str = if cfg!(feature = "bpf") {
    "Built with BPF programs (engine xdp, baton flip --method sk_lookup)."
} else {
    "Built without BPF programs: engine xdp and baton flip --method sk_lookup are not available. Install clang and build \
     with `make build` (cargo feature bpf)."
};

/// Four lines, as scripts expect them of `haproxy -v`: the second word is `version` and the third a version.
pub fn version() -> String {
    let system = uname();
    format!(
        "Baton version {VERSION} - compatible with the configuration of HAProxy version {COMPATIBLE_VERSION}\n\
         Status: development.\n\
         Known bugs: see the issues of the project.\n\
         Running on: {system}\n"
    )
}

/// `-vv`: the same, and what a script may look for.
pub fn version_and_options() -> String {
    let features: Vec<String> =
        FEATURES.iter().map(|(name, is_there)| format!("{}{name}", if *is_there { '+' } else { '-' })).collect();
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let capacity = Capacity::now(&Model::default(), threads);
    format!(
        "{}Build options :\n  TARGET  = {}-{}\n  PROFILE = {profile}\n\n\
         Feature list : {}\n\n\
         Default settings :\n  bufsize = 16384, maxrewrite = 1024\n\n\
         Built with multi-threading support (default={threads}).\n\
         Default maxconn here, before listening sockets : {capacity}.\n\
         Built with transparent proxy support using: IP_TRANSPARENT\n\
         {BPF}\n\n\
         Available polling systems :\n      epoll : pref=300,  test result OK\nTotal: 1 (1 usable), will use epoll.\n",
        version(),
        std::env::consts::OS,
        std::env::consts::ARCH,
        features.join(" "),
    )
}

/// The usage; the program is called by the name it was started with.
pub fn usage(program: &str) -> String {
    format!(
        "Usage : {program} [-f <cfgfile|cfgdir>]* [ -vdVD ] [ -n <maxconn> ] [ -N <maxpconn> ]
        [ -p <pidfile> ] [ -C <dir> ] [ -- <cfgfile>* ]
        {program} COMMAND ...   (below; `baton help COMMAND` describes one)
        -v displays version ; -vv shows known build options.
        -d enters debug mode ; -db only disables background mode.
        -V enters verbose mode (disables quiet mode)
        -D goes daemon ; -C changes to <dir> before loading files.
        -W starts a master that supervises the worker ; -Ws also notifies systemd
        -q quiet mode : don't display messages
        -c check mode : only check config files and exit
        --leave-out FEATURE[,...] with -c : leaves out lines that use these features, which Baton lacks ;
           names: {features}
        -cc check condition : evaluate a condition and exit
        -n sets the maximum total # of connections
        -N sets the default, per-proxy maximum # of connections
        -L set local peer name (default to hostname)
        -p writes the pid to this file
        -dr ignores server address resolution failures
        -dS disables splice() ; -dV disables the verification of server certificates
        -dW fails if any warning is emitted
        -dD diagnostic mode : warn about suspicious configuration statements
        -S <bind>[,<bind options>...] opens the master's socket (with -W)
        -m, -dA, -dC, -dF, -dG, -dI, -dK, -dL, -dM, -dR, -dZ, -de, -dl, -dp, -dt, -dv: accepted without effect
        -x <unix_socket> get listening sockets from a unix socket
        -sf PID... takes over from these processes, which stop gracefully ; -st PID... immediately
        To apply a changed configuration: run `baton reload`, or send SIGUSR2.
        To stop: SIGUSR1 (graceful stop), SIGTERM (immediate stop).

{commands}
",
        commands = verbs::overview(),
        features = feature_names(),
    )
}

/// What `--leave-out` knows, several to a line.
fn feature_names() -> String {
    let names: Vec<&str> = FEATURES_LACKING.iter().chain([&OTHERS]).map(|feature| feature.name).collect();
    let lines: Vec<String> = names.chunks(6).map(|names| names.join(", ")).collect();
    lines.join(",\n           ")
}

/// System, release, version and machine, as `uname -a` words them.
fn uname() -> String {
    nix::sys::utsname::uname().map_or_else(
        |_| "unknown".into(),
        |name| {
            let parts = [name.sysname(), name.release(), name.version(), name.machine()];
            parts.map(|part| part.to_string_lossy().into_owned()).join(" ")
        },
    )
}
