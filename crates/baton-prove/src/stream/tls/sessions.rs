//! What connections remember of earlier ones, so that later ones are resumed.
//!
//! A load is many users, each of whom has sessions of their own, and all connections of a load remember in one place. rustls'
//! own memory keeps eight tickets of TLS 1.3 for each server, each of which serves once: of fifty connections at a time most would
//! find none.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustls::{
    NamedGroup,
    client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue},
    pki_types::ServerName,
};

/// The most servers whose sessions are remembered; what comes from others is forgotten.
const SERVERS_MAX: usize = 256;
/// The most tickets of each: those that came last.
const TICKETS_MAX: usize = 1024;

/// Sessions by the servers' names.
#[derive(Debug, Default)]
pub(super) struct TlsSessions(Mutex<HashMap<ServerName<'static>, Remembered>>);

#[derive(Debug, Default)]
struct Remembered {
    group: Option<NamedGroup>,
    /// Of TLS 1.2, which serves again and again.
    session: Option<Tls12ClientSessionValue>,
    /// Of TLS 1.3; the newest is the last.
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl TlsSessions {
    fn all(&self) -> MutexGuard<'_, HashMap<ServerName<'static>, Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn edit(&self, server: ServerName<'static>, edit: impl FnOnce(&mut Remembered)) {
        let mut all = self.all();
        if all.len() < SERVERS_MAX || all.contains_key(&server) {
            edit(all.entry(server).or_default());
        }
    }
}

impl ClientSessionStore for TlsSessions {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.edit(server, |remembered| remembered.group = Some(group));
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.all().get(server).and_then(|remembered| remembered.group)
    }

    fn set_tls12_session(&self, server: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.edit(server, |remembered| remembered.session = Some(session));
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.all().get(server).and_then(|remembered| remembered.session.clone())
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        self.edit(server.clone(), |remembered| remembered.session = None);
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.edit(server, |remembered| {
            if remembered.tickets.len() == TICKETS_MAX {
                remembered.tickets.pop_front();
            }
            remembered.tickets.push_back(ticket);
        });
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.all().get_mut(server).and_then(|remembered| remembered.tickets.pop_back())
    }
}
