//! What operators set at run time on the change line: commands write overrides here and nowhere else, and here they become what is in
//! force. Between processes they go as [`OverrideRecord`]s.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use baton_kernel::process::over_exec::{memory_file, read_whole};
use baton_model::{Author, EndedOverride, Field, Model, Object, Override, Overrides, Server, Setting};
use baton_proxy::balance::{ServerState, Transition};
use serde::{Deserialize, Serialize};

use crate::printable;
use crate::reload::{ChangeLine, Ready};
use crate::tickets::wall_seconds;

/// Overrides that are named one by one when they end.
const NAMED_MAX: usize = 20;

/// Bytes of all overrides that a master keeps.
const BYTES_MAX: u64 = 256 << 20;

/// An override between processes and in `baton status`. A promise for ever, as [`handover`](crate::handover::message) says: fields may
/// be added, and a field or an object that is unknown here is left out.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OverrideRecord {
    /// The backend.
    pub backend: String,
    /// The server.
    pub server: String,
    /// `state`, `weight`.
    pub field: String,
    /// Its value.
    pub value: String,
    /// What the file said when it was set.
    pub file: String,
    /// Who set it: the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Who set it: the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Over which socket.
    pub socket: String,
    /// When, in seconds since 1970.
    pub at_s: u64,
}

impl OverrideRecord {
    /// Of an override.
    pub fn of(object: &Object, set: &Override) -> OverrideRecord {
        let Object::Server { backend, server } = object;
        OverrideRecord {
            backend: backend.to_string(),
            server: server.to_string(),
            field: set.value.field().word().into(),
            value: set.value.to_string(),
            file: set.file.to_string(),
            uid: set.by.uid,
            pid: set.by.pid,
            socket: set.by.socket.clone(),
            at_s: set.at_s,
        }
    }

    /// Who set it.
    pub fn by(&self) -> Author {
        Author { uid: self.uid, pid: self.pid, socket: self.socket.clone() }
    }

    /// When it was set.
    pub fn at(&self) -> jiff::Timestamp {
        i64::try_from(self.at_s).ok().and_then(|at| jiff::Timestamp::from_second(at).ok()).unwrap_or_default()
    }

    /// The override; `None` of what is unknown here. It may be another process's, and its texts are shown.
    fn read(&self) -> Option<(Object, Override)> {
        let name = |text: &str| -> Arc<str> { printable::line(text).into() };
        let field = Field::of_word(&self.field)?;
        let (value, file) = (Setting::parse(field, &self.value)?, Setting::parse(field, &self.file)?);
        let by = Author { socket: printable::line(&self.socket).into_owned(), ..self.by() };
        Some((Object::server(&name(&self.backend), &name(&self.server)), Override { value, file, by, at_s: self.at_s }))
    }
}

/// Which field of what is overridden.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(default)]
pub struct OverrideKey {
    /// The backend.
    pub backend: String,
    /// The server.
    pub server: String,
    /// `state`, `weight`.
    pub field: String,
}

impl OverrideKey {
    /// Of a field.
    pub fn of(object: &Object, field: Field) -> OverrideKey {
        let Object::Server { backend, server } = object;
        OverrideKey { backend: backend.to_string(), server: server.to_string(), field: field.word().into() }
    }
}

/// All overrides of a worker, with its master.
#[derive(Debug, Default)]
pub(crate) struct KeptOverrides(BTreeMap<OverrideKey, OverrideRecord>);

impl KeptOverrides {
    /// An operator has set this.
    pub fn set(&mut self, set: OverrideRecord) {
        let (backend, server, field) = (set.backend.clone(), set.server.clone(), set.field.clone());
        self.0.insert(OverrideKey { backend, server, field }, set);
    }

    /// This is as in the file again.
    pub fn restored(&mut self, of: &OverrideKey) {
        self.0.remove(of);
    }

    /// As a memory file; `None` when there are none.
    pub fn to_file(&self) -> io::Result<Option<OwnedFd>> {
        let all: Vec<&OverrideRecord> = self.0.values().collect();
        let file = || memory_file("baton-overrides", &serde_json::to_vec(&all)?);
        (!all.is_empty()).then(file).transpose()
    }

    /// Of such a file.
    pub fn of_file(file: OwnedFd) -> KeptOverrides {
        let mut kept = KeptOverrides::default();
        let all = read_whole(file, BYTES_MAX).map(|bytes| of_bytes(&bytes)).unwrap_or_default();
        all.into_iter().for_each(|set| kept.set(set));
        kept
    }
}

/// What a reload does with an override.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlannedOverride {
    /// The override.
    #[serde(flatten)]
    pub set: OverrideRecord,
    /// Why it ends; `None`: it stays.
    pub ends: Option<String>,
}

impl fmt::Display for PlannedOverride {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.ends {
            Some(why) => write!(out, "{} ends: {why}", self.set),
            None => write!(out, "{} stays", self.set),
        }
    }
}

impl fmt::Display for OverrideRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverrideRecord { backend, server, field, value, file, .. } = self;
        write!(out, "server {backend}/{server} {field} {value} (file: {file})")
    }
}

/// What a reload to this model does with overrides.
pub(crate) fn planned(overrides: &Overrides, model: &Model) -> Vec<PlannedOverride> {
    let ended: HashMap<(Object, Field), EndedOverride> = overrides
        .ended_by(model)
        .into_iter()
        .map(|ended| ((ended.object.clone(), ended.value.field()), ended))
        .collect();
    let planned = overrides.iter().map(|(object, set)| {
        let ends = ended.get(&(object.clone(), set.value.field())).map(EndedOverride::why);
        PlannedOverride { set: OverrideRecord::of(object, set), ends }
    });
    planned.collect()
}

/// The first of very many lines, and how many more there are.
pub fn named(mut lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut named: Vec<String> = lines.by_ref().take(NAMED_MAX).collect();
    match lines.count() {
        0 => {}
        more => named.push(format!("set at run time: {more} more end")),
    }
    named
}

/// All overrides as records.
pub fn records(overrides: &Overrides) -> Vec<OverrideRecord> {
    overrides.iter().map(|(object, set)| OverrideRecord::of(object, set)).collect()
}

/// All overrides for a master to keep.
pub(crate) fn to_bytes(overrides: &Overrides) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&records(overrides))
}

/// What a master kept; nothing when that is none.
pub fn of_bytes(bytes: &[u8]) -> Vec<OverrideRecord> {
    serde_json::from_slice(bytes).unwrap_or_default()
}

impl ChangeLine {
    /// An operator sets a field of a server: that is so from now on, over reloads and in processes after this one, until the file
    /// changes that field. Gives what followed from another state.
    pub(crate) fn override_server(
        &mut self,
        server: &Arc<ServerState>,
        value: Setting,
        by: Author,
        now: Instant,
    ) -> Option<Transition> {
        let backend = server.backend()?;
        let config = server.config();
        let object = Object::server(backend.name(), server.name());
        let file = Setting::of(value.field(), &config);
        let set = Override { value, file, by, at_s: wall_seconds() };
        let effective = self.registry.change_overrides(|overrides| {
            overrides.set(object.clone(), set);
            overrides.server(backend.name(), &config)
        });
        self.untold.push((object, value.field()));
        server.set_weight(effective.weight, now);
        let transition = server.set_admin(server.admin_with(&config, effective), now);
        if transition.is_some() {
            self.checker.track_admin(now, |name| self.registry.backend_state(name));
        }
        transition
    }

    /// Goes on with the overrides of another process, for the first configuration, before its commit. Gives those that its file ends.
    pub fn recall_overrides(&self, kept: &[OverrideRecord], ready: &Ready) -> Vec<EndedOverride> {
        let generation = &ready.generation;
        let mut others = Overrides::default();
        kept.iter().filter_map(OverrideRecord::read).for_each(|(object, set)| others.set(object, set));
        let ended = self.registry.change_overrides(|overrides| {
            overrides.join(others);
            overrides.settle(&generation.model)
        });
        let overrides = self.registry.overrides();
        for backend in overrides.backends() {
            if let Some(plan) = generation.backends.get(backend) {
                plan.state.settle(&|server: &Server| overrides.server(backend, server));
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_that_end_the_first_are_named() {
        let lines = |count: usize| named((0..count).map(|number| number.to_string()));
        assert_eq!((lines(0).len(), lines(NAMED_MAX).len()), (0, NAMED_MAX));
        assert_eq!(lines(NAMED_MAX + 3).last().map(String::as_str), Some("set at run time: 3 more end"));
    }

    #[test]
    fn a_record_is_read_for_ever_and_what_is_unknown_is_left_out() {
        let text = r#"{"backend":"app","server":"s1","field":"state","value":"maint","file":"ready","uid":0,"pid":7,
            "socket":"unix@/run/b.sock","at_s":1700000000,"something":"new"}"#;
        let record: OverrideRecord = serde_json::from_str(text).unwrap();
        let (object, set) = record.read().unwrap();
        assert_eq!((object.to_string().as_str(), set.value.to_string().as_str()), ("server app/s1", "maint"));
        assert_eq!(set.by.to_string(), "uid 0 pid 7 over unix@/run/b.sock");
        assert_eq!(OverrideRecord::of(&object, &set), record);
        let unknown = OverrideRecord { field: "colour".into(), ..record.clone() };
        assert_eq!((unknown.read(), OverrideRecord { value: "1".into(), ..record }.read()), (None, None));
        let record: OverrideRecord = serde_json::from_str(r#"{"field":"weight","value":"3","file":"9"}"#).unwrap();
        assert_eq!(record.read().map(|(_, set)| set.by.to_string()), Some("over ".into()));
    }
}
