//! Health checks (configuration manual, 4.2 `option httpchk`, `http-check`, `tcp-check`, 5.2 `check` and its companions).

use std::sync::Arc;
use std::time::Duration;

use crate::{Address, ServerProtocol, ServerTls};

/// How a backend's servers are checked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Check {
    /// What is spoken.
    pub kind: CheckType,
    /// `option log-health-checks`.
    pub log: bool,
    /// `http-check disable-on-404`.
    pub disable_on_404: bool,
    /// `http-check send-state`.
    pub send_state: bool,
}

/// The check's protocol.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum CheckType {
    /// A TCP connection that opens is enough.
    #[default]
    Connect,
    /// `option httpchk`: the steps in order; an expectation that is missing at the end is `status 200-399`.
    Http(Vec<CheckStep>),
    /// `option tcp-check`: the steps in order.
    Tcp(Vec<CheckStep>),
    /// A protocol with an option of its own.
    Protocol(CheckProtocol),
    /// `option external-check`: a program decides.
    External(ExternalCheck),
}

impl CheckType {
    /// The steps of `http-check` and `tcp-check` lines.
    pub fn steps(&self) -> &[CheckStep] {
        match self {
            CheckType::Http(steps) | CheckType::Tcp(steps) => steps,
            CheckType::Connect | CheckType::Protocol(_) | CheckType::External(_) => &[],
        }
    }
}

/// A protocol whose dialogue is known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CheckProtocol {
    /// `option grpc-check [service NAME]`: the health protocol of gRPC.
    Grpc {
        /// The service that is asked for; empty: the server as a whole.
        service: String,
    },
    /// `option ldap-check`.
    Ldap,
    /// `option mysql-check [user NAME [post-41|pre-41]]`.
    MySql {
        /// `user`: a handshake is completed.
        user: Option<String>,
        /// `pre-41`: in the form of servers before 4.1.
        is_before_41: bool,
    },
    /// `option pgsql-check user NAME`.
    PostgreSql {
        /// The user.
        user: String,
    },
    /// `option redis-check`.
    Redis,
    /// `option smtpchk`.
    Smtp {
        /// The greeting, such as `HELO localhost`.
        hello: String,
    },
    /// `option spop-check`.
    Spop,
    /// `option ssl-hello-chk`.
    SslHello,
}

/// `option external-check`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ExternalCheck {
    /// `external-check command`.
    pub command: String,
    /// `external-check path`: `PATH` of the command.
    pub path: Option<String>,
}

/// One `http-check` or `tcp-check` line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CheckStep {
    /// `comment`: what the next step is about.
    Comment(String),
    /// `connect`: a (new) connection.
    Connect(CheckConnect),
    /// `http-check send`, or what `option httpchk METHOD URI VERSION` says.
    Send(HttpCheckSend),
    /// `tcp-check send` and its relatives.
    SendData(CheckData),
    /// `expect`.
    Expect(CheckExpect),
    /// `set-var(…)` and `set-var-fmt(…)`.
    SetVariable {
        /// What stands in the parentheses: a name, and conditions.
        target: String,
        /// An expression, or a format for `set-var-fmt`.
        value: CheckText,
    },
    /// `unset-var(NAME)`.
    UnsetVariable(String),
}

/// A text as it stands in the file, or one that is computed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CheckText {
    /// As it is; of `set-var` an expression.
    Plain(String),
    /// A format.
    Format(String),
}

/// `connect`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CheckConnect {
    /// `port`.
    pub port: Option<CheckPort>,
    /// `addr`.
    pub addr: Option<Address>,
    /// `send-proxy`.
    pub send_proxy: bool,
    /// `via-socks4`: through `socks4` of the server.
    pub via_socks4: bool,
    /// `ssl`.
    pub ssl: bool,
    /// `sni`.
    pub sni: Option<String>,
    /// `alpn`.
    pub alpn: Option<Vec<String>>,
    /// `proto`, of HTTP.
    pub proto: Option<ServerProtocol>,
    /// `linger`: closed without a reset.
    pub linger: bool,
    /// `default`: what is not said here is as the server's line says.
    pub default: bool,
    /// `comment`.
    pub comment: Option<String>,
}

/// `connect port`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CheckPort {
    /// This one.
    Number(u16),
    /// The value of an expression.
    Expression(String),
}

/// `tcp-check send`, `send-lf`, `send-binary`, `send-binary-lf`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CheckData {
    /// What is sent.
    pub text: CheckText,
    /// It is in hexadecimal digits.
    pub is_binary: bool,
    /// `comment`.
    pub comment: Option<String>,
}

/// `expect`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CheckExpect {
    /// `!`: must not match.
    pub negated: bool,
    /// `status`, `rstatus`, `string`, `rstring`, `string-lf`, `hdr`, `fhdr`, `binary`, `rbinary`, `binary-lf`.
    pub kind: String,
    /// The pattern's words.
    pub pattern: Vec<String>,
    /// `min-recv`: the least number of bytes that decide; then they do.
    pub min_recv: Option<u32>,
    /// `comment`.
    pub comment: Option<String>,
    /// `ok-status`, such as `L7OK`.
    pub ok_status: Option<String>,
    /// `error-status`.
    pub error_status: Option<String>,
    /// `tout-status`.
    pub timeout_status: Option<String>,
    /// `on-success`, a format.
    pub on_success: Option<String>,
    /// `on-error`, a format.
    pub on_error: Option<String>,
    /// `status-code`, an expression.
    pub status_code: Option<String>,
}

/// The request of a check.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HttpCheckSend {
    /// Method, `OPTIONS` by default.
    pub method: String,
    /// URI, `/` by default.
    pub uri: CheckText,
    /// Version text, `HTTP/1.0` by default.
    pub version: String,
    /// `hdr NAME VALUE`, in order; values are formats.
    pub headers: Vec<(String, String)>,
    /// HAProxy's old way to write headers behind the version: as they are.
    pub old_headers: Vec<(String, String)>,
    /// `body`.
    pub body: Option<CheckText>,
    /// `comment`.
    pub comment: Option<String>,
}

impl Default for HttpCheckSend {
    fn default() -> Self {
        HttpCheckSend {
            method: "OPTIONS".into(),
            uri: CheckText::Plain("/".into()),
            version: "HTTP/1.0".into(),
            headers: Vec::new(),
            old_headers: Vec::new(),
            body: None,
            comment: None,
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
    /// `check-via-socks4`: checks go through `socks4` of the server, too.
    pub via_socks4: bool,
    /// Checks are encrypted: `check-ssl`, or as traffic is when they go to the same place.
    pub ssl: bool,
    /// `check-sni`: the name that an encrypted check asks for.
    pub sni: Option<String>,
    /// `check-alpn`: the protocols that an encrypted check offers.
    pub alpn: Option<Vec<String>>,
    /// `check-proto`, of HTTP, or `proto` without it; `None`: as ALPN has it, otherwise HTTP/1.
    pub proto: Option<ServerProtocol>,
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
            via_socks4: false,
            ssl: false,
            sni: None,
            alpn: None,
            proto: None,
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
