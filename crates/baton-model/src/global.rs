//! The `global` section (configuration manual, 3).

use std::path::PathBuf;
use std::time::Duration;

use crate::{GlobalTls, Http2Tuning, IpvsTuning, KeywordLines, LogTarget, Process, Stats, VariableLimits};

/// Process-wide settings.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Global {
    /// `daemon`.
    pub daemon: bool,
    /// `quiet`.
    pub quiet: bool,
    /// `master-worker`: a master supervises the process that serves.
    pub master_worker: bool,
    /// `nbthread`; `None`: the CPUs this process may use.
    pub nbthread: Option<u32>,
    /// `maxconn`: connections of the whole process; `None`: derived from the descriptor limit.
    pub maxconn: Option<u32>,
    /// `maxconnrate`: connections accepted in a second, of the whole process.
    pub maxconnrate: Option<u32>,
    /// `maxsessrate`: sessions begun in a second, of the whole process.
    pub maxsessrate: Option<u32>,
    /// `maxsslconn`: TLS connections with clients, of the whole process; `None`: as many as `maxconn`.
    pub maxsslconn: Option<u32>,
    /// `maxsslrate`: TLS connections accepted in a second, of the whole process.
    pub maxsslrate: Option<u32>,
    /// `maxpipes`: pipes for splicing; `None`: see [`Model::pipes_max`](crate::Model::pipes_max).
    pub maxpipes: Option<u32>,
    /// `nosplice`: splicing is off whatever the proxies say.
    pub nosplice: bool,
    /// `ulimit-n`.
    pub ulimit_n: Option<u64>,
    /// `pidfile`.
    pub pidfile: Option<PathBuf>,
    /// `user` or `uid`, resolved.
    pub uid: Option<u32>,
    /// `group` or `gid`, resolved.
    pub gid: Option<u32>,
    /// `chroot`.
    pub chroot: Option<PathBuf>,
    /// Other settings of the process: its limits, processors and rights.
    pub process: Process,
    /// `node`.
    pub node: Option<String>,
    /// `description`.
    pub description: Option<String>,
    /// `log` lines.
    pub log: Vec<LogTarget>,
    /// `log-tag`; `haproxy` by default.
    pub log_tag: Option<String>,
    /// `log-send-hostname`: `Some("")` is the machine's name.
    pub log_hostname: Option<String>,
    /// `hard-stop-after`: the longest a soft stop may take.
    pub hard_stop_after: Option<Duration>,
    /// `grace`: how long to go on serving after SIGUSR1 before the listeners stop.
    pub grace: Option<Duration>,
    /// `close-spread-time`: idle connections are closed spread over this time in a soft stop.
    pub close_spread_time: Option<Duration>,
    /// `spread-checks`, percent.
    pub spread_checks: u32,
    /// `max-spread-checks`.
    pub max_spread_checks: Option<Duration>,
    /// Settings of TLS.
    pub tls: GlobalTls,
    /// `tune.ipvs.*`.
    pub ipvs: IpvsTuning,
    /// `tune.xdp.connections`: how many the engine xdp remembers. `None` goes by the machine.
    pub xdp_connections: Option<u32>,
    /// `stats …`: the runtime API.
    pub stats: Stats,
    /// `tune.bufsize` in bytes.
    pub bufsize: usize,
    /// `tune.maxrewrite` in bytes.
    pub maxrewrite: usize,
    /// `tune.http.maxhdr`.
    pub maxhdr: usize,
    /// `h1-accept-payload-with-any-method`: requests of HTTP/1.0 with GET, HEAD or DELETE may have a body.
    pub http10_payload: bool,
    /// `tune.http.logurilen`: the longest part of a request line that is logged.
    pub logged_line_len: usize,
    /// `tune.http.cookielen`: the longest part of a cookie that is captured.
    pub captured_cookie_len: usize,
    /// `tune.maxaccept`: connections that a listener accepts before other work gets its turn; `u32::MAX` is no limit.
    pub maxaccept: Option<u32>,
    /// `tune.handover off`: established connections neither move to the process that takes over, nor come from the one before.
    pub keeps_connections: bool,
    /// `tune.handover.patience`: how long a request in flight has to end before it moves in the middle.
    pub handover_patience: Duration,
    /// `tune.stick-counters`: how many entries of stick tables a session or a request can track.
    pub stick_counters: u8,
    /// `server-state-file`: states of servers at the end of an earlier process, read at the start.
    pub server_state_file: Option<PathBuf>,
    /// `server-state-base`: the directory of such files whose names are relative.
    pub server_state_base: Option<PathBuf>,
    /// `tune.vars.*-max-size`.
    pub variable_limits: VariableLimits,
    /// `set-var` and `set-var-fmt`: the name of a variable of the process, and what it is set to, as it is written.
    pub variables: Vec<(String, String)>,
    /// `tune.h2.*`.
    pub http2: Http2Tuning,
    /// The lines of its keywords.
    pub lines: KeywordLines,
}

impl Global {
    /// `tune.stick-counters` where it is not given.
    pub const STICK_COUNTERS: u8 = 3;
    /// `tune.handover.patience` where it is not given.
    pub const HANDOVER_PATIENCE: Duration = Duration::from_secs(2);
}

impl Default for Global {
    fn default() -> Self {
        Global {
            daemon: false,
            quiet: false,
            master_worker: false,
            nbthread: None,
            maxconn: None,
            maxconnrate: None,
            maxsessrate: None,
            maxsslconn: None,
            maxsslrate: None,
            maxpipes: None,
            nosplice: false,
            ulimit_n: None,
            pidfile: None,
            uid: None,
            gid: None,
            chroot: None,
            process: Process::default(),
            node: None,
            description: None,
            log: Vec::new(),
            log_tag: None,
            log_hostname: None,
            hard_stop_after: None,
            grace: None,
            close_spread_time: None,
            spread_checks: 0,
            max_spread_checks: None,
            tls: GlobalTls::default(),
            ipvs: IpvsTuning::default(),
            xdp_connections: None,
            stats: Stats::default(),
            bufsize: 16384,
            maxrewrite: 1024,
            maxhdr: 101,
            http10_payload: false,
            logged_line_len: 1023,
            captured_cookie_len: 63,
            maxaccept: None,
            keeps_connections: false,
            handover_patience: Global::HANDOVER_PATIENCE,
            stick_counters: Global::STICK_COUNTERS,
            server_state_file: None,
            server_state_base: None,
            variable_limits: VariableLimits::default(),
            variables: Vec::new(),
            http2: Http2Tuning::default(),
            lines: KeywordLines::default(),
        }
    }
}
