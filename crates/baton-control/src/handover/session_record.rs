//! What rules have left in a session, as it is described to another process: a part of the description of a connection that needs the word
//! `session-state`.
//!
//! Entries of stick tables are described by their keys. The other process tracks the same ones before the connection is given away, and
//! this one does until then: they count it at least once at each instant, and once in the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use baton_model::KeyType;
use baton_proxy::Registry;
use baton_proxy::moving::{RequestState, SessionState, StayReason};
use baton_rules::{
    CapturedValues, Captures, LogLevel, QueuePriority, RuleLine, RuleSettings, SettingValues, SocketChanges,
    TrackedCounters, UniqueId, VARIABLES_MAX, VariableName, VariableScope, Variables,
};
use baton_tables::{Key, Now, OwnedKey, Tables};
use serde::{Deserialize, Serialize};

use super::memory::VariableMemory;
use crate::overrides::entries::{bytes, escaped};

/// The most slots of captures, and the longest of other texts.
const SLOTS_MAX: usize = 4096;
const TEXT_MAX: usize = 1 << 16;

/// What rules have left in a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionRecord {
    /// Variables of scope `sess`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<VariableMemory>,
    /// Entries of stick tables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tracked: Vec<TrackedRecord>,
    /// What they have left in its request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestRecord>,
}

/// An entry of a stick table that is tracked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrackedRecord {
    /// Its counter: 0 is `sc0`.
    pub counter: u8,
    /// The table.
    pub table: String,
    /// The type of the key.
    pub kind: String,
    /// The key; of text and bytes, what is no UTF-8 as `\\xHH`.
    pub key: String,
}

/// What rules have left in a request, or in a connection in `mode tcp`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestRecord {
    /// Variables of the scopes `txn`, `req` and `res`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<VariableMemory>,
    /// Entries of stick tables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tracked: Vec<TrackedRecord>,
    /// Slots of captures of the request, with the most bytes of each, and of the response.
    #[serde(skip_serializing_if = "is_none")]
    pub captures: [Vec<(usize, Option<String>)>; 2],
    /// Captured cookies.
    #[serde(skip_serializing_if = "no_cookies")]
    pub cookies: [Option<String>; 2],
    /// Its unique ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique_id: Option<String>,
    /// `set-log-level`; -1: `silent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<i8>,
    /// The last rule that ended a rule set: its file and line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_rule: Option<(String, u32)>,
    /// What else was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<SettingsRecord>,
}

fn is_none(slots: &[Vec<(usize, Option<String>)>; 2]) -> bool {
    slots.iter().all(Vec::is_empty)
}

fn no_cookies(cookies: &[Option<String>; 2]) -> bool {
    cookies.iter().all(Option::is_none)
}

/// What rules have set of addresses, sockets, queues and timeouts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SettingsRecord {
    /// `set-src`.
    pub source: Option<SocketAddr>,
    /// `set-dst`.
    pub destination: Option<SocketAddr>,
    /// `set-fc-tos` and `set-fc-mark` that are still to be done.
    pub client_socket: (Option<u8>, Option<u32>),
    /// `set-bc-tos` and `set-bc-mark`.
    pub server_socket: (Option<u8>, Option<u32>),
    /// `set-priority-class` and `set-priority-offset`.
    pub priority: (i16, i32),
    /// `set-timeout` for `client`, `server` and `tunnel`, in milliseconds.
    pub timeouts: [Option<u64>; 3],
    /// `set-retries`.
    pub retries: Option<u32>,
    /// `expect-proxy`.
    pub expects_proxy: bool,
    /// `expect-netscaler-cip`.
    pub expects_netscaler: bool,
}

impl SessionRecord {
    /// Of a session that leaves.
    pub fn of(state: &SessionState) -> SessionRecord {
        SessionRecord {
            variables: variables_of(&state.variables),
            tracked: tracked_of(&state.tracked),
            request: state.request.as_deref().map(RequestRecord::of),
        }
    }

    /// What it describes: its entries are tracked from now on.
    ///
    /// # Errors
    /// There is none of its tables here, or there is no room in it; or it is not understood.
    pub fn state(self, registry: &Registry, now: Now) -> Result<SessionState, StayReason> {
        let variables = variables(self.variables, &[VariableScope::Session], registry)?;
        let tracked = tracked(self.tracked, &registry.tables, now)?;
        let request = match self.request {
            Some(request) => Some(Box::new(request.state(registry, now)?)),
            None => None,
        };
        Ok(SessionState { variables, tracked, request })
    }
}

impl RequestRecord {
    fn of(state: &RequestState) -> RequestRecord {
        let CapturedValues { slots, cookies } = state.captures.values();
        let text = |value: Option<Vec<u8>>| value.as_deref().map(escaped);
        RequestRecord {
            variables: variables_of(&state.variables),
            tracked: tracked_of(&state.tracked),
            captures: slots.map(|slots| slots.into_iter().map(|(len, value)| (len, text(value))).collect()),
            cookies: cookies.map(text),
            unique_id: state.unique_id.made().map(escaped),
            log_level: state.log_level.map(|level| match level {
                LogLevel::Silent => -1,
                LogLevel::Level(level) => level as i8,
            }),
            last_rule: state.last_rule.map(|RuleLine { file, line }| (file.to_owned(), line)),
            settings: state.settings.values().map(SettingsRecord::of),
        }
    }

    fn state(self, registry: &Registry, now: Now) -> Result<RequestState, StayReason> {
        let scopes = [VariableScope::Transaction, VariableScope::Request, VariableScope::Response];
        let variables = variables(self.variables, &scopes, registry)?;
        let tracked = tracked(self.tracked, &registry.tables, now)?;
        let is_odd = self.captures.iter().any(|slots| slots.len() > SLOTS_MAX)
            || self.last_rule.as_ref().is_some_and(|(file, _)| file.len() > TEXT_MAX);
        if is_odd {
            return Err(StayReason::Unknown);
        }
        let text = |value: Option<String>| value.map(|value| bytes(&value));
        let captures = Captures::resumed(CapturedValues {
            slots: self.captures.map(|slots| slots.into_iter().map(|(len, value)| (len, text(value))).collect()),
            cookies: self.cookies.map(text),
        });
        let unique_id = text(self.unique_id);
        // It goes into headers and lines.
        if unique_id.as_ref().is_some_and(|id| id.iter().any(|byte| matches!(byte, b'\r' | b'\n' | b'\0'))) {
            return Err(StayReason::Unknown);
        }
        let log_level = match self.log_level {
            None => None,
            Some(-1) => Some(LogLevel::Silent),
            Some(level @ 0..=7) => Some(LogLevel::Level(level as u8)),
            Some(_) => return Err(StayReason::Unknown),
        };
        Ok(RequestState {
            tracked,
            variables,
            captures,
            unique_id: UniqueId::resumed(unique_id.map(Into::into)),
            log_level,
            last_rule: self.last_rule.map(|(file, line)| RuleLine::at(&file, line)),
            settings: RuleSettings::resumed(self.settings.map(SettingsRecord::values)),
            began: None,
        })
    }
}

impl SettingsRecord {
    fn of(values: &SettingValues) -> SettingsRecord {
        let SettingValues {
            source,
            destination,
            socket,
            server_tos,
            server_mark,
            priority,
            client_timeout,
            server_timeout,
            tunnel_timeout,
            retries,
            expects_proxy,
            expects_netscaler,
        } = *values;
        let milliseconds = |time: Option<Duration>| time.map(super::memory::milliseconds);
        SettingsRecord {
            source,
            destination,
            client_socket: (socket.tos, socket.mark),
            server_socket: (server_tos, server_mark),
            priority: (priority.class, priority.offset_ms),
            timeouts: [client_timeout, server_timeout, tunnel_timeout].map(milliseconds),
            retries,
            expects_proxy,
            expects_netscaler,
        }
    }

    fn values(self) -> SettingValues {
        let [client_timeout, server_timeout, tunnel_timeout] =
            self.timeouts.map(|time| time.map(|time| Duration::from_millis(time.min(TIMEOUT_MS_MAX))));
        SettingValues {
            source: self.source,
            destination: self.destination,
            socket: SocketChanges { tos: self.client_socket.0, mark: self.client_socket.1 },
            server_tos: self.server_socket.0,
            server_mark: self.server_socket.1,
            priority: QueuePriority {
                class: self.priority.0.clamp(-2047, 2047),
                offset_ms: self.priority.1.clamp(-524_287, 524_287),
            },
            client_timeout,
            server_timeout,
            tunnel_timeout,
            retries: self.retries,
            expects_proxy: self.expects_proxy,
            expects_netscaler: self.expects_netscaler,
        }
    }
}

/// The longest timeout, as in the configuration.
const TIMEOUT_MS_MAX: u64 = i32::MAX as u64;

fn variables_of(variables: &Variables) -> Vec<VariableMemory> {
    variables.iter().map(|(name, value)| VariableMemory::of(name.full(), Some(value))).collect()
}

/// Those of some scopes.
fn variables(
    records: Vec<VariableMemory>,
    scopes: &[VariableScope],
    registry: &Registry,
) -> Result<Variables, StayReason> {
    let variable = |record: VariableMemory| {
        let name = VariableName::parse(&record.name).ok().filter(|name| scopes.contains(&name.scope()))?;
        Some((name, record.sample()??))
    };
    if records.len() > VARIABLES_MAX {
        return Err(StayReason::Unknown);
    }
    let list: Option<Vec<_>> = records.into_iter().map(variable).collect();
    Ok(Variables::resumed(list.ok_or(StayReason::Unknown)?, &registry.variables))
}

fn tracked_of(tracked: &TrackedCounters) -> Vec<TrackedRecord> {
    let record = |(counter, entry): (u8, &baton_tables::Tracked)| {
        let key = match entry.key() {
            OwnedKey::Ip(address) => address.to_string(),
            OwnedKey::Ipv6(address) => address.to_string(),
            OwnedKey::Integer(number) => number.to_string(),
            OwnedKey::String(text) | OwnedKey::Binary(text) => escaped(&text),
        };
        let table = entry.table();
        TrackedRecord { counter, table: table.name().to_string(), kind: table.key_type().word().into(), key }
    };
    tracked.by_counter().map(record).collect()
}

fn tracked(records: Vec<TrackedRecord>, tables: &Tables, now: Now) -> Result<TrackedCounters, StayReason> {
    let mut tracked = TrackedCounters::default();
    for TrackedRecord { counter, table, kind, key } in records {
        let table = tables.get(&table).filter(|table| table.key_type().word() == kind).ok_or(StayReason::Tracked)?;
        let text = bytes(&key);
        let key = match table.key_type() {
            KeyType::Ip => key.parse().ok().map(Key::from_ip),
            KeyType::Ipv6 => key.parse().ok().map(Key::from_ipv6),
            KeyType::Integer => key.parse().ok().map(Key::from_integer),
            KeyType::String { .. } => Some(Key::from_string(&text)),
            KeyType::Binary { .. } => Some(Key::from_binary(&text)),
        };
        let key = key.ok_or(StayReason::Unknown)?;
        // A handle of its own: what tracks it is counted apart from what others hold.
        let entry = Arc::clone(&table).track(&key, now).ok_or(StayReason::Tracked)?;
        tracked.resume(counter, entry, now);
    }
    Ok(tracked)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use baton_model::{DataType, StickTable, Stored};

    use super::*;

    fn registry() -> (Registry, Now) {
        let registry = Registry::new(1, Instant::now());
        let mut table = StickTable::new("t", KeyType::String { length: 31 }, 100);
        table.stored = vec![Stored { data: DataType::ConnCur, elements: 1, period: None }];
        registry.tables.commit(registry.tables.prepare(&[table]).unwrap());
        let now = registry.timeline.at(Instant::now());
        (registry, now)
    }

    const ALL: &str = r#"{"variables":[{"name":"sess.a","kind":"sint","value":"-7"}],
        "tracked":[{"counter":2,"table":"t","kind":"string","key":"a\\xff"}],
        "request":{"variables":[{"name":"txn.b","kind":"bin","value":"\u0000\n"},{"name":"res.ip","kind":"ip","value":"192.0.2.1"},
            {"name":"txn.on","kind":"bool","value":"1"},{"name":"req.m","kind":"meth","value":"GET"},
            {"name":"txn.s","kind":"str","value":"x"}],
        "tracked":[{"counter":0,"table":"t","kind":"string","key":"b"}],
        "captures":[[[4,"abcd"],[5,null]],[[3,""]]],"cookies":[null,"a=b"],"unique_id":"id","log_level":-1,
        "last_rule":["/etc/x.cfg",7],"settings":{"source":"192.0.2.1:5","destination":null,"client_socket":[1,2],"server_socket":[null,4],
            "priority":[5,-6],"timeouts":[1000,null,3000],"retries":3,"expects_proxy":true,"expects_netscaler":false}}}"#;

    #[test]
    fn what_rules_have_left_is_read_as_it_is_written() {
        let (registry, now) = registry();
        let record: SessionRecord = serde_json::from_str(ALL).unwrap();
        let state = record.clone().state(&registry, now).unwrap();
        assert_eq!(SessionRecord::of(&state), record);
        let table = registry.tables.get("t").unwrap();
        let current = |key: &[u8]| table.find(&Key::from_binary(key), now)?.get(DataType::ConnCur, 0, now);
        assert_eq!((current(b"a\xff"), current(b"b")), (Some(1), Some(1)));
        // The other process has them, too, until it has given the connection away.
        let second = record.state(&registry, now).unwrap();
        assert_eq!(current(b"b"), Some(2));
        drop(state);
        assert_eq!(current(b"b"), Some(1));
        drop(second);
        assert_eq!((current(b"a\xff"), current(b"b")), (Some(0), Some(0)));
    }

    #[test]
    fn what_is_not_understood_is_refused_and_tracks_nothing() {
        let (registry, now) = registry();
        let check = |from: &str, to: &str, reason: StayReason| {
            let text = ALL.replace(from, to);
            assert_ne!(text, ALL, "{from}");
            let record: SessionRecord = serde_json::from_str(&text).unwrap();
            assert_eq!(record.state(&registry, now).unwrap_err(), reason, "{to}");
        };
        check(r#""kind":"sint""#, r#""kind":"float""#, StayReason::Unknown);
        check("sess.a", "proc.a", StayReason::Unknown);
        check("txn.s", "sess.s", StayReason::Unknown);
        check("txn.s", "txn.", StayReason::Unknown);
        check(r#""value":"-7""#, r#""value":"seven""#, StayReason::Unknown);
        check(r#""table":"t""#, r#""table":"gone""#, StayReason::Tracked);
        check(r#""kind":"string""#, r#""kind":"ip""#, StayReason::Tracked);
        check(r#""unique_id":"id""#, r#""unique_id":"id\r\nx: y""#, StayReason::Unknown);
        check(r#""log_level":-1"#, r#""log_level":8"#, StayReason::Unknown);
        let table = registry.tables.get("t").unwrap();
        let tracked = table.find(&Key::from_binary(b"a\xff"), now).unwrap();
        assert_eq!((tracked.references(), tracked.get(DataType::ConnCur, 0, now)), (1, Some(0)));
    }
}
