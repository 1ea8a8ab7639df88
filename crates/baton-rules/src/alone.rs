//! An evaluation without a connection: what the file and operators set variables of the process to; and for fuzz targets.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use baton_tables::{Now, Table};

use crate::capture::Captures;
use crate::context::{Context, Listener, ProxyName};
use crate::live::{Figure, LiveState};
use crate::log::{LogSource, NoLog, UniqueId};
use crate::process::ProcessVariables;
use crate::rules::ProxyRules;
use crate::settings::RuleSettings;
use crate::tracking::{TrackedCounters, TrackedScopes};
use crate::variable::{VariableScopes, Variables};

/// What is there without a connection.
pub struct Alone<'a> {
    /// The time.
    pub now: SystemTime,
    /// Writes dates, and knows the process.
    pub log: &'a dyn LogSource,
    /// Gives a random number at each call.
    pub random: &'a dyn Fn() -> u32,
    /// Variables of the process.
    pub variables: &'a ProcessVariables,
    /// Proxies, servers and stick tables; `None`: there are none yet.
    pub live: Option<&'a dyn LiveState>,
}

impl Alone<'_> {
    /// Evaluates.
    pub(crate) fn evaluate<T>(&self, evaluate: impl FnOnce(&mut Context<'_>) -> T) -> T {
        self.with(&ProxyRules::default(), None, evaluate)
    }

    fn with<T>(&self, rules: &ProxyRules, line: Option<&[u8]>, evaluate: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let captures = RefCell::new(Captures::default());
        rules.begin_captures(&mut captures.borrow_mut());
        let id = UniqueId::default();
        let (mut of_session, mut of_exchange) = (Variables::new(), Variables::new());
        let (mut tracked_by_session, mut tracked_by_exchange) =
            (TrackedCounters::default(), TrackedCounters::default());
        let mut cx = Context {
            now: self.now,
            client: None,
            destination: &|| None,
            changed_destination: &Cell::new(None),
            client_tls: None,
            server_tls: None,
            frontend: ProxyName::default(),
            backend: None,
            server: None,
            listener: Listener { name: None, id: 1 },
            live: self.live.unwrap_or(&NoState),
            content: None,
            answer: None,
            last_chance: true,
            undecided: Cell::new(false),
            no_retry: false,
            failed_rewrites: 0,
            first_request: true,
            request: None,
            response: None,
            variables: VariableScopes::new(self.variables, &mut of_session, Some(&mut of_exchange)),
            tracked: TrackedScopes::new(&mut tracked_by_session, Some(&mut tracked_by_exchange)),
            own_status: None,
            line,
            response_version: None,
            captures: Some(&captures),
            unique_id: Some((&id, rules.unique_id_format())),
            log: self.log,
            log_level: None,
            last_rule: None,
            settings: &mut RuleSettings::default(),
            matches_hash: &|_, _| false,
            random: self.random,
            scratch: &mut Vec::new(),
        };
        evaluate(&mut cx)
    }
}

/// A process in which there is nothing.
pub(crate) struct NoState;

impl LiveState for NoState {
    fn figure(&self, _: Figure<'_>) -> Option<i64> {
        None
    }

    fn is_local(&self, _: IpAddr) -> bool {
        false
    }

    fn table(&self, _: &str) -> Option<Arc<Table>> {
        None
    }

    fn table_now(&self) -> Now {
        Now::default()
    }
}

/// Evaluates with no client, no messages and nothing known, but a request line as received and the captures and the unique ID that
/// these rules describe.
#[doc(hidden)]
pub fn with_bare_context<T>(rules: &ProxyRules, line: &[u8], evaluate: impl FnOnce(&mut Context<'_>) -> T) -> T {
    let variables = ProcessVariables::default();
    let alone = Alone { now: UNIX_EPOCH, log: &NoLog, random: &|| 4, variables: &variables, live: None };
    alone.with(rules, Some(line), |cx| {
        cx.frontend = ProxyName { name: "front", id: 2 };
        evaluate(cx)
    })
}
