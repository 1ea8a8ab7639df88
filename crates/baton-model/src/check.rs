//! Health checks (configuration manual, 4.2 `option httpchk`, `http-check`, 5.2 `check` and its companions).

use std::sync::Arc;
use std::time::Duration;

use crate::{Address, ServerTls};

/// How a backend's servers are checked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Check {
    /// What is spoken.
    pub kind: CheckType,
    /// `option log-health-checks`.
    pub log: bool,
    /// `http-check disable-on-404`.
    pub disable_on_404: bool,
}

/// The check's protocol.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum CheckType {
    /// A TCP connection that opens is enough.
    #[default]
    Connect,
    /// `option httpchk`: the steps in order; an expectation that is missing at the end is `status 200-399`.
    Http(Vec<CheckStep>),
}

/// One `http-check` line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CheckStep {
    /// `http-check connect`: a (new) connection, `port` overriding the server's.
    Connect {
        /// `port`.
        port: Option<u16>,
        /// `send-proxy`.
        send_proxy: bool,
        /// `ssl`.
        ssl: bool,
        /// `sni`.
        sni: Option<String>,
        /// `alpn`.
        alpn: Option<Vec<String>>,
        /// `default`: what is not said here is as the server's line says.
        default: bool,
    },
    /// `http-check send`, or what `option httpchk METHOD URI VERSION` says.
    Send(HttpCheckSend),
    /// `http-check expect [!] KIND PATTERN`; the words after `expect`, compiled by `baton-control`.
    Expect {
        /// `!`: must not match.
        negated: bool,
        /// `status`, `rstatus`, `string`, `rstring`, `hdr`, `fhdr`.
        kind: String,
        /// The pattern's words.
        pattern: Vec<String>,
    },
}

/// The request of a check.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HttpCheckSend {
    /// Method, `OPTIONS` by default.
    pub method: String,
    /// URI, `/` by default.
    pub uri: String,
    /// Version text, `HTTP/1.0` by default.
    pub version: String,
    /// `hdr NAME VALUE`, in order. HAProxy's old way to write headers behind the version is split into these too.
    pub headers: Vec<(String, String)>,
    /// `body`.
    pub body: Option<String>,
}

impl Default for HttpCheckSend {
    fn default() -> Self {
        HttpCheckSend {
            method: "OPTIONS".into(),
            uri: "/".into(),
            version: "HTTP/1.0".into(),
            headers: Vec::new(),
            body: None,
        }
    }
}

/// The check settings of one server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CheckSettings {
    /// `check`: checks are on.
    pub enabled: bool,
    /// `inter`.
    pub inter: Duration,
    /// `fastinter`: while the state is in transition; `None`: `inter`.
    pub fastinter: Option<Duration>,
    /// `downinter`: while down; `None`: `inter`.
    pub downinter: Option<Duration>,
    /// `rise`: good checks to be up again.
    pub rise: u32,
    /// `fall`: bad checks to be down.
    pub fall: u32,
    /// `addr`: check this address instead.
    pub addr: Option<Address>,
    /// `port`: check this port instead.
    pub port: Option<u16>,
    /// `check-send-proxy`.
    pub send_proxy: bool,
    /// Checks are encrypted: `check-ssl`, or as traffic is when they go to the same place.
    pub ssl: bool,
    /// `check-sni`: the name that an encrypted check asks for.
    pub sni: Option<String>,
    /// `check-alpn`: the protocols that an encrypted check offers.
    pub alpn: Option<Vec<String>>,
    /// The settings of encrypted checks, of a server whose traffic is not encrypted.
    pub tls: Option<Arc<ServerTls>>,
    /// `observe`.
    pub observe: Observe,
    /// `error-limit`: consecutive observed errors before `on_error`.
    pub error_limit: u32,
    /// `on-error`.
    pub on_error: OnError,
    /// `on-marked-down`.
    pub on_marked_down: MarkedDown,
    /// `on-marked-up`.
    pub on_marked_up: MarkedUp,
    /// `init-state`.
    pub init_state: InitState,
    /// `track [BACKEND/]SERVER`: copy that server's state instead of checking.
    pub track: Option<String>,
}

impl Default for CheckSettings {
    fn default() -> Self {
        CheckSettings {
            enabled: false,
            inter: Duration::from_millis(2000),
            fastinter: None,
            downinter: None,
            rise: 2,
            fall: 3,
            addr: None,
            port: None,
            send_proxy: false,
            ssl: false,
            sni: None,
            alpn: None,
            tls: None,
            observe: Observe::None,
            error_limit: 10,
            on_error: OnError::FailCheck,
            on_marked_down: MarkedDown::None,
            on_marked_up: MarkedUp::None,
            init_state: InitState::Up,
            track: None,
        }
    }
}

/// `observe`: traffic that counts as a health report.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Observe {
    /// Nothing.
    #[default]
    None,
    /// `layer4`: connections.
    Layer4,
    /// `layer7`: responses too.
    Layer7,
}

/// `on-error`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnError {
    /// `fastinter`.
    FastInter,
    /// `fail-check`: count a failed check.
    #[default]
    FailCheck,
    /// `sudden-death`: one more failed check marks the server down.
    SuddenDeath,
    /// `mark-down`.
    MarkDown,
}

/// `on-marked-down`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MarkedDown {
    /// Sessions go on.
    #[default]
    None,
    /// `shutdown-sessions`.
    ShutdownSessions,
}

/// `on-marked-up`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MarkedUp {
    /// Nothing.
    #[default]
    None,
    /// `shutdown-backup-sessions`.
    ShutdownBackupSessions,
}

/// `init-state` (HAProxy 3.1): a checked server's state before its first check.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum InitState {
    /// `up`: up until the first failure.
    #[default]
    Up,
    /// `fully-up`: up, and only `fall` failures bring it down.
    FullyUp,
    /// `down`: down until the first success.
    Down,
    /// `fully-down`: down until `rise` successes.
    FullyDown,
}
