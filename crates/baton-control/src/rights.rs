//! Who may ask a running process for what (the table in `docs/operate.md`), and how many at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use baton_model::Model;

use crate::protocol::Request;

/// Conversations at a time of root and of who started the process, together.
const TRUSTED_MAX: usize = 1024;
/// Of all other users together, and of each.
const OTHERS_MAX: usize = 32;
/// Conversations at a time of each of the other users.
const EACH_MAX: usize = 4;

/// Users who may do something besides root.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// Who started the process, or its master.
    pub starters: Vec<u32>,
    /// As whom it runs (`user`).
    pub runs_as: u32,
}

impl Rights {
    /// Whether the user is root or started the process.
    pub fn is_starter(&self, uid: u32) -> bool {
        uid == 0 || self.starters.contains(&uid)
    }

    /// Whether the user may ask that. A handover is decided where it is known who asks for it, and for what.
    pub fn may(&self, uid: u32, request: &Request) -> bool {
        match request {
            Request::Status | Request::Certificates => self.is_starter(uid) || uid == self.runs_as,
            Request::Reload | Request::Plan { .. } | Request::SyncCertificates | Request::Upgrade => {
                self.is_starter(uid)
            }
            Request::Handover => true,
        }
    }

    /// Names those who may, so that the reader knows as whom to try again.
    pub fn refusal(&self, uid: u32, request: &Request) -> String {
        let mut users = self.starters.clone();
        users.push(self.runs_as);
        users.retain(|user| *user != 0 && self.may(*user, request));
        users.sort_unstable();
        users.dedup();
        let others: String = users.iter().map(|user| format!(", user {user}")).collect();
        format!(
            "user {uid} is not permitted to {} process {}; permitted: root{others}",
            request.action(),
            std::process::id()
        )
    }

    /// Whether the user may take the listening sockets: root, who started the process, and the owner of a `stats socket` that
    /// gives them to him (`expose-fd listeners`) by this configuration.
    pub fn may_take(&self, uid: u32, model: &Model) -> bool {
        let consents =
            |socket: &baton_model::StatsSocket| socket.exposes_listeners && socket.bind.options.socket.uid == Some(uid);
        self.is_starter(uid) || model.global.stats.sockets.iter().any(consents)
    }
}

/// Places of conversations, of which nobody can occupy those of others.
#[derive(Clone, Debug, Default)]
pub struct Places(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    trusted: usize,
    others: usize,
    each: HashMap<u32, usize>,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    uid: u32,
    is_trusted: bool,
}

impl Places {
    /// A place for one more conversation; `None` when the user has as many as he may.
    pub fn take(&self, uid: u32, is_trusted: bool) -> Option<Place> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_trusted {
            taken.trusted = Some(taken.trusted + 1).filter(|all| *all <= TRUSTED_MAX)?;
        } else {
            let own = taken.each.get(&uid).copied().unwrap_or_default();
            if taken.others >= OTHERS_MAX || own >= EACH_MAX {
                return None;
            }
            taken.others += 1;
            taken.each.insert(uid, own + 1);
        }
        Some(Place { places: self.clone(), uid, is_trusted })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_trusted {
            taken.trusted -= 1;
            return;
        }
        taken.others -= 1;
        if let Some(own) = taken.each.get_mut(&self.uid) {
            *own -= 1;
            if *own == 0 {
                taken.each.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use baton_model::{AccessLevel, Address, Bind, BindOptions, SeverityOutput, Source, StatsSocket};

    use super::*;

    #[test]
    fn who_may_what() {
        let rights = Rights { starters: vec![1000], runs_as: 65534 };
        let check = |request: Request, expect: [bool; 4]| {
            assert_eq!([0, 1000, 65534, 7].map(|uid| rights.may(uid, &request)), expect, "{request:?}");
        };
        check(Request::Status, [true, true, true, false]);
        check(Request::Certificates, [true, true, true, false]);
        check(Request::Reload, [true, true, false, false]);
        check(Request::Plan { files: Vec::new() }, [true, true, false, false]);
        check(Request::SyncCertificates, [true, true, false, false]);
        check(Request::Upgrade, [true, true, false, false]);
        let pid = std::process::id();
        let refused = rights.refusal(7, &Request::Status);
        assert_eq!(
            refused,
            format!(
                "user 7 is not permitted to see the status of process {pid}; permitted: root, user 1000, user 65534"
            )
        );
        let refused = Rights { starters: vec![0], runs_as: 65534 }.refusal(65534, &Request::Reload);
        assert_eq!(refused, format!("user 65534 is not permitted to reload process {pid}; permitted: root"));
        let mut model = Model::default();
        let may_take = |model: &Model| [0, 1000, 65534, 7].map(|uid| rights.may_take(uid, model));
        assert_eq!(may_take(&model), [true, true, false, false]);
        let (address, source) = (Address::Unix("/x".into()), Source::default());
        let mut options = BindOptions::default();
        options.socket.uid = Some(7);
        let bind = Bind { address, name: None, id: None, options, source };
        let (level, severity) = (AccessLevel::User, SeverityOutput::None);
        let socket = StatsSocket { bind, level, severity, exposes_listeners: false };
        model.global.stats.sockets.push(socket);
        assert_eq!(may_take(&model), [true, true, false, false]);
        model.global.stats.sockets[0].exposes_listeners = true;
        assert_eq!(may_take(&model), [true, true, false, true]);
    }

    #[test]
    fn nobody_takes_the_places_of_others() {
        let places = Places::default();
        let of = |uid: u32| (0..1000).map_while(|_| places.take(uid, false)).collect::<Vec<_>>();
        let one = of(7);
        assert_eq!(one.len(), EACH_MAX);
        let mut all: Vec<Vec<Place>> = (8..100).map(of).collect();
        assert_eq!(one.len() + all.iter().map(Vec::len).sum::<usize>(), OTHERS_MAX);
        assert!(places.take(0, true).is_some() && places.take(1000, true).is_some());
        all.clear();
        assert_eq!(of(8).len(), EACH_MAX, "what is given back can be taken again");
    }
}
