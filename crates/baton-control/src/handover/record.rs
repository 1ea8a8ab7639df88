//! A connection as it is described to another process.
//!
//! Fields may be added, which who does not know them ignores. What must not be ignored makes a new [`FORMAT`]: who does not know it refuses
//! the connection, and it stays where it is. Times are ages and what is left, for clocks of processes have nothing in common.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use baton_proxy::moving::{Departure, IdleClient, StayReason};
use serde::{Deserialize, Serialize};

use crate::listeners::Place;

/// The format of records that this program writes, and reads.
pub const FORMAT: u32 = 1;

/// The longest values of a PROXY header: it has no more.
const PROXY_VALUES_MAX: usize = 1 << 16;

/// The oldest that anything can be: ten years. Dates are made of ages.
const AGE_US_MAX: u64 = 10 * 366 * 24 * 3600 * 1_000_000;

/// A client's connection between two requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionRecord {
    /// What one has to know to serve it.
    pub format: u32,
    /// The frontend that it came in by.
    pub frontend: String,
    /// The address that it was accepted on, as the configuration names it.
    pub address: String,
    /// Its `interface`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Its `namespace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The client's address, or what a PROXY header says it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SocketAddr>,
    /// The address that it connected to, if `has_destination`; otherwise it is that of the socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<SocketAddr>,
    /// Whether `destination` holds.
    pub has_destination: bool,
    /// It began with a PROXY header.
    #[serde(skip_serializing_if = "is_false")]
    pub has_proxy_header: bool,
    /// Values of that header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_values: Option<Vec<u8>>,
    /// Since it was accepted, or its handshakes were done; microseconds.
    pub age_us: u64,
    /// How long its handshakes took.
    pub handshake_ms: u32,
    /// Requests so far.
    pub requests: u32,
    /// When the last one ended, milliseconds after the accept.
    pub rested_ms: u32,
    /// What is left until the next one must have begun, microseconds; nothing: it may take its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_us: Option<u64>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl ConnectionRecord {
    /// Of a connection that leaves.
    pub fn of(departure: &Departure, now: Instant) -> ConnectionRecord {
        let place = Place::of(&departure.listener.bind);
        let client = &departure.client;
        ConnectionRecord {
            format: FORMAT,
            frontend: client.frontend.to_string(),
            address: place.address.to_string(),
            interface: place.interface,
            namespace: place.namespace,
            source: client.source,
            destination: client.destination.flatten(),
            has_destination: client.destination.is_some(),
            has_proxy_header: client.has_proxy_header,
            proxy_values: client.proxy_values.clone(),
            age_us: microseconds(now.saturating_duration_since(client.accepted)),
            handshake_ms: client.handshake_ms,
            requests: client.requests,
            rested_ms: client.rested_ms,
            due_us: client.due.map(|due| microseconds(due.saturating_duration_since(now))),
        }
    }

    /// Whether it was accepted there.
    pub fn is_of(&self, place: &Place) -> bool {
        self.interface == place.interface
            && self.namespace == place.namespace
            && self.address == place.address.to_string()
    }

    /// The connection that it describes, which arrives at `now`.
    ///
    /// # Errors
    /// It describes none that could be served here.
    pub fn client(self, now: Instant) -> Result<IdleClient, StayReason> {
        let is_long = |values: &Vec<u8>| values.len() > PROXY_VALUES_MAX;
        if self.format != FORMAT || self.proxy_values.as_ref().is_some_and(is_long) {
            return Err(StayReason::Unknown);
        }
        let accepted = ago(now, self.age_us).ok_or(StayReason::Unknown)?;
        let due = self.due_us.map(|left| now + Duration::from_micros(left.min(AGE_US_MAX)));
        Ok(IdleClient {
            frontend: self.frontend.into(),
            source: self.source,
            destination: self.has_destination.then_some(self.destination),
            has_proxy_header: self.has_proxy_header,
            proxy_values: self.proxy_values,
            accepted,
            handshake_ms: self.handshake_ms,
            requests: self.requests,
            rested_ms: self.rested_ms,
            due,
        })
    }
}

/// So many microseconds before `now`; `None`: that cannot be.
fn ago(now: Instant, us: u64) -> Option<Instant> {
    now.checked_sub(Duration::from_micros(us)).filter(|_| us <= AGE_US_MAX)
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Result<u32, StayReason>) {
        let record: ConnectionRecord = serde_json::from_str(text).unwrap();
        let now = Instant::now();
        assert_eq!(record.client(now).map(|client| client.requests), expect, "{text}");
    }

    #[test]
    fn what_is_not_understood_stays() {
        check(r#"{"format":1,"frontend":"web","requests":3}"#, Ok(3));
        check(r#"{"format":1,"requests":3,"mood":{"good":[1]}}"#, Ok(3));
        check(r#"{"format":2,"requests":3}"#, Err(StayReason::Unknown));
        check(r#"{"requests":3}"#, Err(StayReason::Unknown));
        check(r#"{"format":1,"age_us":18446744073709551615}"#, Err(StayReason::Unknown));
    }
}
