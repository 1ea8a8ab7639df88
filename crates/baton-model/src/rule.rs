//! Rules as they were written. `baton-rules` compiles them when the file is judged, beside the model, which needs no
//! knowledge of what a keyword does.

use crate::Source;

/// One line of a rule set: its words after the keyword that names the set, conditions included.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// Which set it belongs to.
    pub ruleset: Ruleset,
    /// The words after the set's keyword, unquoted: `set-header X-A b if { path /x }` for `http-request`.
    pub words: Vec<String>,
    /// Where it stands.
    pub source: Source,
}

/// The rule sets of a proxy; each keeps the order of the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash, PartialOrd, Ord)]
pub enum Ruleset {
    /// `acl NAME CRITERION …`.
    Acl,
    /// `http-request …`.
    HttpRequest,
    /// `http-response …`.
    HttpResponse,
    /// `http-after-response …`.
    HttpAfterResponse,
    /// `tcp-request connection …`.
    TcpConnection,
    /// `tcp-request session …`.
    TcpSession,
    /// `tcp-request content …`.
    TcpContent,
    /// `tcp-response content …`.
    TcpResponse,
    /// `use_backend NAME [if …]`.
    UseBackend,
    /// `use-server NAME [if …]`.
    UseServer,
    /// `redirect …`.
    Redirect,
    /// `http-error …` that compose a response; which of several for a status counts, [`ErrorPage`](crate::ErrorPage) says.
    HttpError,
    /// `monitor fail if …`: the words from `if` on.
    MonitorFail,
    /// `force-persist if …`.
    ForcePersist,
    /// `ignore-persist if …`.
    IgnorePersist,
    /// `stick on|match|store-request|store-response …`.
    Stick,
    /// `stats http-request …`: who may see the statistics page.
    StatsRequest,
    /// `stats admin if …`: the words from `if` on.
    StatsAdmin,
    /// `capture …` and `declare capture …`: the words from `cookie`, `request` or `response` on, behind `declare` if it is one.
    Capture,
    /// `log-format`: its text.
    LogFormat,
    /// `log-format-sd`.
    LogFormatSd,
    /// `error-log-format`.
    ErrorLogFormat,
    /// `unique-id-format`.
    UniqueIdFormat,
    /// `option forwarded`: its arguments.
    Forwarded,
}

/// What `http-request use-service` names: Baton itself responds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Service {
    /// `prometheus-exporter`: metrics.
    PrometheusExporter,
}

impl Service {
    /// All of them.
    pub const ALL: [Service; 1] = [Service::PrometheusExporter];

    /// The service of that name.
    pub fn of(word: &str) -> Option<Service> {
        Service::ALL.into_iter().find(|service| service.word() == word)
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Service::PrometheusExporter => "prometheus-exporter",
        }
    }
}
