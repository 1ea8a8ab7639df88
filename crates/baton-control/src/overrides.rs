//! What operators set at run time, as others see it: between processes, in `baton status` and in plans it is an [`OverrideRecord`].

pub mod discovered;
pub mod entries;
pub mod fragment;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use baton_model::{Author, EndedOverride, Field, Model, Object, Override, Overrides, Setting};
use serde::{Deserialize, Serialize};

use crate::printable;

/// Overrides that are named one by one when they end.
const NAMED_MAX: usize = 20;

/// An override between processes and in `baton status`. A promise for ever, as [`handover`](crate::handover::message) says: fields may
/// be added, and a field or an object that is unknown here is left out.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OverrideRecord {
    /// The backend of a server; empty for a frontend and the process.
    pub backend: String,
    /// The server; empty for a frontend and the process.
    pub server: String,
    /// The frontend; empty for a server and the process.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub frontend: String,
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
        let OverrideKey { backend, server, frontend, .. } = OverrideKey::of(object, set.value.field());
        OverrideRecord {
            backend,
            server,
            frontend,
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
    pub(crate) fn read(&self) -> Option<(Object, Override)> {
        let field = Field::of_word(&self.field)?;
        let (value, file) = (Setting::parse(field, &self.value)?, Setting::parse(field, &self.file)?);
        let by = Author { socket: printable::line(&self.socket).into_owned(), ..self.by() };
        Some((self.object(), Override { value, file, by, at_s: self.at_s }))
    }

    fn object(&self) -> Object {
        let name = |text: &str| -> Arc<str> { printable::line(text).into() };
        match (&*self.server, &*self.frontend) {
            ("", "") => Object::Process,
            ("", frontend) => Object::frontend(&name(frontend)),
            (server, _) => Object::server(&name(&self.backend), &name(server)),
        }
    }
}

/// Which field of what is overridden.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(default)]
pub struct OverrideKey {
    /// The backend of a server.
    pub backend: String,
    /// The server.
    pub server: String,
    /// The frontend.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub frontend: String,
    /// `state`, `weight`.
    pub field: String,
}

impl OverrideKey {
    /// Of a field.
    pub fn of(object: &Object, field: Field) -> OverrideKey {
        let key = OverrideKey { field: field.word().into(), ..OverrideKey::default() };
        match object {
            Object::Process => key,
            Object::Frontend { frontend } => OverrideKey { frontend: frontend.to_string(), ..key },
            Object::Server { backend, server } => {
                OverrideKey { backend: backend.to_string(), server: server.to_string(), ..key }
            }
        }
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
        if field == entries::ENTRY {
            let (backend, server) = (printable::line(backend), printable::line(server));
            return write!(out, "{backend} {server} {value} (file: {file})");
        }
        write!(out, "{} {field} {value} (file: {file})", self.object())
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
        more => named.push(format!("set at run time: {more} more settings end")),
    }
    named
}

/// All overrides as records.
pub fn records(overrides: &Overrides) -> Vec<OverrideRecord> {
    overrides.iter().map(|(object, set)| OverrideRecord::of(object, set)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_that_end_the_first_are_named() {
        let lines = |count: usize| named((0..count).map(|number| number.to_string()));
        assert_eq!((lines(0).len(), lines(NAMED_MAX).len()), (0, NAMED_MAX));
        assert_eq!(lines(NAMED_MAX + 3).last().map(String::as_str), Some("set at run time: 3 more settings end"));
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
        let limits = [
            (Object::Process, Setting::TlsRate(7), Setting::TlsRate(0), "global maxsslrate 7 (file: 0)"),
            (
                Object::frontend(&"web".into()),
                Setting::Maxconn(7),
                Setting::Maxconn(0),
                "frontend web maxconn 7 (file: 0)",
            ),
        ];
        for (object, value, file, text) in limits {
            let set = Override { value, file, ..set.clone() };
            let record = OverrideRecord::of(&object, &set);
            assert_eq!((record.to_string().as_str(), record.read()), (text, Some((object, set))));
        }
        let unknown = OverrideRecord { field: "colour".into(), ..record.clone() };
        assert_eq!((unknown.read(), OverrideRecord { value: "1".into(), ..record }.read()), (None, None));
        let record: OverrideRecord =
            serde_json::from_str(r#"{"server":"s","field":"weight","value":"3","file":"9"}"#).unwrap();
        assert_eq!(record.read().map(|(_, set)| set.by.to_string()), Some("over ".into()));
    }
}
