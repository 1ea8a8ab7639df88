//! What DNS says of servers, as [`OverrideRecord`]s: by them it reaches other processes, and stays with the master. It is no override, and is shown
//! as none.

use std::sync::Arc;

use baton_model::{DiscoveredServer, DiscoveredService};
use serde::{Deserialize, Serialize};

use super::{OverrideKey, OverrideRecord};
use crate::printable;

/// The field of such a record.
pub const DISCOVERED: &str = "discovered";

/// The value of a record. A promise for ever: fields may be added.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Value {
    resolvers: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
}

/// The largest weight of a server.
const WEIGHT_MAX: u32 = 256;

/// What is known of a server as a record.
pub fn record(backend: &str, server: &str, one: &DiscoveredServer) -> OverrideRecord {
    let value = Value {
        resolvers: one.resolvers.to_string(),
        name: one.name.to_string(),
        address: one.address.map(|address| address.to_string()),
        host: one.service.as_ref().map(|service| service.host.to_string()),
        port: one.service.as_ref().map(|service| service.port),
        weight: one.weight,
    };
    let OverrideKey { backend, server, field, .. } = key(backend, server);
    // Texts and numbers can be written.
    let value = serde_json::to_string(&value).unwrap_or_default();
    OverrideRecord { backend, server, field, value, ..OverrideRecord::default() }
}

/// The key under which it is kept.
pub fn key(backend: &str, server: &str) -> OverrideKey {
    OverrideKey {
        backend: backend.to_owned(),
        server: server.to_owned(),
        field: DISCOVERED.into(),
        ..OverrideKey::default()
    }
}

/// What a record says, with backend and server; `None` of another field, or if it is malformed.
pub fn read(record: &OverrideRecord) -> Option<(Arc<str>, Arc<str>, DiscoveredServer)> {
    (record.field == DISCOVERED).then_some(())?;
    let value: Value = serde_json::from_str(&record.value).ok()?;
    let text = |text: &str| -> Arc<str> { printable::line(text).into() };
    let address = match &value.address {
        Some(address) => Some(address.parse().ok()?),
        None => None,
    };
    let service = value.host.zip(value.port).map(|(host, port)| DiscoveredService { host: text(&host), port });
    let weight = value.weight.filter(|weight| *weight <= WEIGHT_MAX);
    let one = DiscoveredServer { resolvers: text(&value.resolvers), name: text(&value.name), address, service, weight };
    Some((text(&record.backend), text(&record.server), one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_these_records_for_ever() {
        let check = |one: DiscoveredServer, value: &str| {
            let record = record("app", "s1", &one);
            assert_eq!((record.backend.as_str(), record.server.as_str()), ("app", "s1"));
            assert_eq!((record.field.as_str(), record.value.as_str()), ("discovered", value));
            assert_eq!(read(&record), Some(("app".into(), "s1".into(), one)));
            assert!(record.read().is_none(), "it is no override");
        };
        let one = DiscoveredServer {
            resolvers: "r".into(),
            name: "app.example".into(),
            address: Some([192, 0, 2, 1].into()),
            service: None,
            weight: None,
        };
        check(one.clone(), r#"{"resolvers":"r","name":"app.example","address":"192.0.2.1"}"#);
        let service = Some(DiscoveredService { host: "a.example".into(), port: 81 });
        check(
            DiscoveredServer { name: "_app._tcp".into(), address: None, service, weight: Some(9), ..one },
            r#"{"resolvers":"r","name":"_app._tcp","host":"a.example","port":81,"weight":9}"#,
        );
        let odd = |field: &str, value: &str| {
            read(&OverrideRecord { field: field.into(), value: value.into(), ..OverrideRecord::default() })
        };
        assert_eq!(odd("weight", "3"), None);
        assert_eq!(odd(DISCOVERED, "x"), None);
        assert_eq!(odd(DISCOVERED, r#"{"address":"x"}"#), None);
        assert_eq!(odd(DISCOVERED, r#"{"weight":9999}"#).and_then(|(_, _, one)| one.weight), None);
    }
}
