//! Commands about servers: weights, states, connections.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use baton_model::{Address, Proxy, Server};
use baton_proxy::BackendPlan;
use baton_proxy::balance::{CheckReport, HealthState, ServerState};

use super::{Begun, Pieces};
use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::reload::ChangeLine;
use crate::state_file::check_number;

/// The columns of `show servers state`, version 1 (management guide, 9.3).
const STATE_COLUMNS: &str = "be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight \
    srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state \
    bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr \
    srv_agent_port";

/// Servers in one piece of a list.
const SERVERS_MAX: usize = 128;

/// A backend and the states of its servers.
type Backend<'a> = (&'a Arc<Proxy>, Vec<Arc<ServerState>>);

/// `get weight <backend>/<server>`.
pub(super) fn weight(control: &Control, call: &Call) -> CommandResponse {
    match find(&control.line, call.arg(0)) {
        Ok(server) => CommandResponse::Data(format!("{} (initial {})\n", server.weight(), server.config().weight)),
        Err(answer) => answer,
    }
}

/// The server that `backend/server` means; each is a name, or `#` and a number.
pub(super) fn find(line: &ChangeLine, words: &str) -> Result<Arc<ServerState>, CommandResponse> {
    let (backend, server) = words.split_once('/').ok_or_else(|| CommandResponse::error("Require 'backend/server'."))?;
    let (proxy, state) = states(line)
        .find(|(proxy, _)| is_meant(backend, &proxy.name, proxy.id))
        .ok_or_else(|| CommandResponse::error("No such backend."))?;
    let is_wanted = |config: &&Arc<Server>| is_meant(server, &config.name, config.id);
    let config = proxy.servers.iter().find(is_wanted).ok_or_else(|| CommandResponse::error("No such server."))?;
    state
        .into_iter()
        .find(|state| *state.name() == config.name)
        .ok_or_else(|| CommandResponse::error("No such server."))
}

/// The backend that a word means, as in [`find`].
pub(super) fn find_backend<'c>(line: &'c ChangeLine, word: &str) -> Result<&'c Arc<Proxy>, CommandResponse> {
    let mut backends = line.model().proxies.iter().filter(|proxy| proxy.role.is_backend());
    let found = backends.find(|proxy| is_meant(word, &proxy.name, proxy.id));
    found.ok_or_else(|| CommandResponse::error("No such backend."))
}

fn is_meant(word: &str, name: &str, id: u32) -> bool {
    match word.strip_prefix('#') {
        Some(number) => number.parse() == Ok(id),
        None => word == name,
    }
}

/// Backends in the order of the files, with their servers; `disabled` ones have none.
fn states(line: &ChangeLine) -> impl Iterator<Item = Backend<'_>> {
    let backends = line.model().proxies.iter().filter(|proxy| proxy.role.is_backend());
    let generation = line.generation();
    backends.map(move |proxy| {
        let plan = generation.and_then(|generation| generation.backends.get(&proxy.name));
        (proxy, plan.map(|plan| plan.state.servers()).unwrap_or_default())
    })
}

/// `show servers state [<backend>]`.
pub(super) fn state(control: &Control, call: &Call) -> Begun {
    let head = format!("1\n# {STATE_COLUMNS}\n");
    ServerListing::of(control, call, head, |out, proxy, _, state, now| state_line(out, proxy, state, now))
}

fn state_line(out: &mut String, proxy: &Proxy, state: &ServerState, now: Instant) {
    let config = state.config();
    let report = state.check_report();
    let (address, port) = place(&config);
    let fqdn = config.found_host().unwrap_or("-");
    let service = config.resolution.as_ref().and_then(|resolution| resolution.service.as_deref()).unwrap_or("-");
    let check_address = match &config.check.addr {
        Some(Address::Inet(address)) => address.ip().to_string(),
        Some(Address::Unix(_) | Address::Abstract(_) | Address::Fd(_)) | None => "-".into(),
    };
    let (result, health) = result(&config, state, &report);
    let (agent_address, agent_port) = agent_place(&config);
    // Writing to a string cannot fail. The ids that were given by hand are not told from others.
    let _ = writeln!(
        out,
        "{} {} {} {} {address} {} {} {} {} {} {} {result} {health} {} {} 0 0 {fqdn} {port} {service} {} {} {check_address} {agent_address} {agent_port}",
        proxy.id,
        proxy.name,
        config.id,
        config.name,
        operation(state, &config, now),
        administration(state, &config),
        state.weight(),
        config.weight,
        now.saturating_duration_since(state.changed()).as_secs(),
        check_number(report.status),
        check_state(&config, state),
        agent_state(&config),
        u8::from(config.tls.is_some()),
        config.check.port.unwrap_or_default(),
    );
}

/// The address without its port, and the port.
fn place(config: &Server) -> (String, u32) {
    let ip = config.address.inet().map_or("-".into(), |address| address.ip().to_string());
    (ip, config.address.service_port())
}

/// `srv_op_state`.
fn operation(state: &ServerState, config: &Server, now: Instant) -> u8 {
    let is_starting =
        config.slowstart.is_some_and(|slowstart| now.saturating_duration_since(state.changed()) < slowstart);
    match state.health() {
        _ if state.admin().in_maintenance() => 0,
        HealthState::Down => 0,
        HealthState::Up if is_starting => 1,
        HealthState::Up => 2,
        HealthState::Stopping => 3,
    }
}

/// `srv_admin_state`, a mask.
fn administration(state: &ServerState, config: &Server) -> u8 {
    let admin = state.admin();
    let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    bit(admin.maintenance, 0x01)
        | bit(admin.maintenance_inherited, 0x02)
        | bit(config.disabled, 0x04)
        | bit(admin.drain, 0x08)
        | bit(admin.drain_inherited, 0x10)
        | bit(admin.unresolved, 0x20)
        | bit(config.named_by_operator || config.weight_by_dns.is_some() || has_service(config), 0x40)
}

/// Whether an SRV record is for it.
fn has_service(config: &Server) -> bool {
    config.found_host().is_some() && config.resolution.as_ref().is_some_and(|resolution| resolution.service.is_some())
}

/// `srv_check_result` and `srv_check_health`.
fn result(config: &Server, state: &ServerState, report: &CheckReport) -> (u8, u32) {
    let result = match report.status {
        "" => 0,
        "L4OK" | "L7OK" => 3,
        "L7OKC" => 4,
        _ => 2,
    };
    let is_in_maintenance = state.admin().in_maintenance();
    let is_up = state.checked_health() != HealthState::Down && !is_in_maintenance;
    match report.status.is_empty() {
        // Before the first check, and without any.
        true => (result, if is_up { config.check.rise } else { 0 }),
        false => (result, if is_in_maintenance { 0 } else { report.health }),
    }
}

/// `srv_check_state`, a mask: configured and enabled, or paused by maintenance. `disabled` pauses what is not there, too.
fn check_state(config: &Server, state: &ServerState) -> u8 {
    let checked = if config.check.enabled { 0x06 } else { 0 };
    let is_paused = state.admin().in_maintenance() && (config.check.enabled || config.disabled);
    checked | if is_paused { 0x08 } else { 0 }
}

/// `srv_agent_state`, a mask: an agent, configured, and enabled.
fn agent_state(config: &Server) -> u8 {
    match config.agent() {
        None => 0,
        Some(agent) => 0x12 | if agent.enabled { 0x04 } else { 0 },
    }
}

/// `srv_agent_addr` and `srv_agent_port`. An agent without an address of its own has that of the checks.
fn agent_place(config: &Server) -> (String, u16) {
    let Some(agent) = config.agent() else { return ("-".into(), 0) };
    let checked = || match &config.check.addr {
        Some(Address::Inet(address)) => Some(address.ip()),
        Some(Address::Unix(_) | Address::Abstract(_) | Address::Fd(_)) | None => None,
    };
    let address = agent.addr.or_else(checked).map_or("-".into(), |address| address.to_string());
    (address, agent.port.unwrap_or_default())
}

/// `show servers conn [<backend>]`.
pub(super) fn connections(control: &Control, call: &Call) -> Begun {
    let cores = control.line.registry().cores();
    let head = format!(
        "# bkname/svname bkid/svid addr port - purge_delay used_cur used_max need_est unsafe_nb safe_nb idle_lim idle_cur \
         idle_per_thr[{cores}]\n"
    );
    ServerListing::of(control, call, head, move |out, proxy, plan, state, _| {
        connection_line(out, cores, proxy, plan, state);
    })
}

fn connection_line(out: &mut String, cores: usize, proxy: &Proxy, plan: &BackendPlan, state: &ServerState) {
    let config = state.config();
    let (address, port) = place(&config);
    let mut idle: Vec<u64> =
        plan.servers.get(state.name()).map(|server| server.counters.idle().collect()).unwrap_or_default();
    idle.resize(cores, 0);
    let all: u64 = idle.iter().sum();
    let _ = write!(
        out,
        "{}/{} {}/{} {address} {port} - {} {served} {} {served} 0 {all} {} {all}",
        proxy.name,
        config.name,
        proxy.id,
        config.id,
        config.pool_purge_delay.as_millis(),
        state.served_max(),
        config.pool_max_conn,
        served = state.served(),
    );
    for count in idle {
        let _ = write!(out, " {count}");
    }
    out.push('\n');
}

/// Writes the line of one server.
type WriteLine = Box<dyn Fn(&mut String, &Proxy, &BackendPlan, &ServerState, Instant)>;

/// A list of servers in the making, of the configuration that was in use when it began.
struct ServerListing {
    head: Option<String>,
    backends: Vec<(Arc<Proxy>, Arc<BackendPlan>)>,
    /// The servers of the current one, and the next of them.
    servers: Option<(Vec<Arc<ServerState>>, usize)>,
    backend: usize,
    line: WriteLine,
}

impl ServerListing {
    /// Of all backends, or of the one that the command names.
    fn of(
        control: &Control,
        call: &Call,
        head: String,
        line: impl Fn(&mut String, &Proxy, &BackendPlan, &ServerState, Instant) + 'static,
    ) -> Begun {
        let word = call.arg(0);
        let is_wanted = |proxy: &Proxy| word.is_empty() || *proxy.name == *word || word.parse() == Ok(proxy.id);
        let all = control.line.model().proxies.iter().filter(|proxy| proxy.role.is_backend() && is_wanted(proxy));
        let mut is_any = word.is_empty();
        let mut backends = Vec::new();
        for proxy in all {
            is_any = true;
            let plan = control.line.generation().and_then(|generation| generation.backends.get(&proxy.name));
            // `disabled` ones have none.
            backends.extend(plan.map(|plan| (Arc::clone(proxy), Arc::clone(plan))));
        }
        if !is_any {
            return Err(CommandResponse::error("Can't find backend."));
        }
        let (head, line) = (Some(head), Box::new(line));
        Ok(Box::new(ServerListing { head, backends, servers: None, backend: 0, line }))
    }
}

impl Pieces for ServerListing {
    fn next(&mut self, _: &Control) -> Option<String> {
        let mut out = self.head.take().unwrap_or_default();
        let now = Instant::now();
        let mut left = SERVERS_MAX;
        while left > 0
            && let Some((proxy, plan)) = self.backends.get(self.backend)
        {
            let (states, at) = self.servers.take().unwrap_or_else(|| (plan.state.servers(), 0));
            let end = states.len().min(at + left);
            states[at..end].iter().for_each(|state| (self.line)(&mut out, proxy, plan, state, now));
            left -= end - at;
            match end < states.len() {
                true => self.servers = Some((states, end)),
                false => self.backend += 1,
            }
        }
        (!out.is_empty()).then_some(out)
    }
}
