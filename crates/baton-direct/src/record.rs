//! What is ours in the kernel: a file that outlives the program.
//!
//! The kernel does not know who made a service. So before a director adds one or takes one over, it writes down that it is its own, and only
//! after it removed one it strikes it out: a program that is killed between two steps leaves nothing that the next one would take
//! for somebody else's. A service that is in the record and not in the kernel is nothing; the next record lacks it.
//!
//! A record of another boot or of a network namespace that is gone is none. There is a file for each engine and owner ([`DirectorSettings::owner`]) in the folder of the network namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use baton_kernel::state::{Lock, NamespaceId, State};
use serde::{Deserialize, Serialize};

use crate::plan::Owners;
use crate::{DirectorSettings, KernelError, ServiceKey, SyncRole, choose};

/// Where records are.
const RUN: &str = "/run/baton-direct";
/// The owner without a name.
const OWNER: &str = "baton";
/// How long another one may have the records; a reconciliation takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// The kind of the lock that who directs has.
const CHARGE: &str = "charge";
/// What a record is written as. Another one's is not ours to read.
const VERSION: u32 = 1;

/// What a file of the record says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordFile {
    version: u32,
    place: NamespaceId,
    owner: String,
    services: BTreeSet<ServiceKey>,
    /// Connection sync daemons that we started.
    #[serde(default)]
    sync: BTreeSet<SyncRole>,
}

/// One engine's record of one owner.
#[derive(Debug)]
pub struct EngineRecord {
    state: State,
    /// The engine's name: the kind of the file.
    engine: &'static str,
    owner: String,
    place: NamespaceId,
}

/// What the records say, read under the lock of the engine.
#[derive(Debug)]
pub struct Opened<'a> {
    record: &'a EngineRecord,
    _lock: Lock,
    /// Whose services are whose.
    pub owners: Owners,
    /// Connection sync daemons that are ours.
    pub sync: BTreeSet<SyncRole>,
    /// Why our record could not be read; then nothing is ours.
    pub unreadable: Option<KernelError>,
}

impl EngineRecord {
    /// The record of an engine in the calling thread's network namespace. Nothing is read yet.
    ///
    /// # Errors
    /// Without the right to write in `/run/baton-direct`.
    pub fn open(engine: &'static str, settings: &DirectorSettings) -> Result<EngineRecord, KernelError> {
        Ok(EngineRecord::open_in(State::open(RUN)?, engine, settings))
    }

    /// The record in another folder.
    pub(crate) fn open_in(state: State, engine: &'static str, settings: &DirectorSettings) -> EngineRecord {
        let owner = if settings.owner.is_empty() { OWNER } else { &settings.owner };
        EngineRecord { state, engine, owner: owner.replace('/', "_"), place: NamespaceId::here() }
    }

    /// Reads all records of this engine, and keeps others from changing theirs until the end.
    ///
    /// # Errors
    /// When the folder cannot be read. A record of ours that cannot be read is none: see [`Opened::unreadable`].
    pub fn read(&self) -> Result<Opened<'_>, KernelError> {
        let lock = self.state.lock_within(self.engine, "all", PATIENCE)?;
        let mut opened =
            Opened { record: self, _lock: lock, owners: Owners::default(), sync: BTreeSet::new(), unreadable: None };
        match self.of(&self.owner) {
            Ok(written) => {
                opened.owners.ours = written.services;
                opened.sync = written.sync;
            }
            Err(fault) => opened.unreadable = Some(fault),
        }
        let mut others: BTreeMap<ServiceKey, String> = BTreeMap::new();
        for name in self.state.names(self.engine)?.iter().filter(|name| **name != self.owner) {
            // What another one's record does not say is its own to repair.
            let services = self.of(name).map(|written| written.services).unwrap_or_default();
            others.extend(services.into_iter().map(|key| (key, name.clone())));
        }
        opened.owners.others = others;
        Ok(opened)
    }

    /// The right of one program to direct in this network namespace by this record, whatever its engine, for as long as the lock
    /// lives. Waits so long for another one that has it.
    ///
    /// # Errors
    /// When another one has it all the time; the words name its process.
    pub fn charge(&self, longest: Duration) -> Result<Lock, KernelError> {
        self.state.lock_within(CHARGE, &self.owner, longest).map_err(|fault| {
            let remedy = "take over from it with a new process (baton -sf PID); or put all sections with `mode direct` into \
                one of the two, or use a network namespace for each";
            KernelError::new("another director runs here", fault.reason, remedy)
        })
    }

    /// Where it is, for messages.
    pub fn path(&self) -> String {
        self.state.folder().join(format!("{}-{}.json", self.engine, self.owner)).display().to_string()
    }

    /// Gives the folder of the records to a user and a group, for a program that goes on as them.
    ///
    /// # Errors
    /// Without the right to.
    pub fn give_to(&self, user: u32, group: u32) -> Result<(), KernelError> {
        self.state.give_to(user, group)
    }

    fn of(&self, owner: &str) -> Result<RecordFile, KernelError> {
        let written: Option<RecordFile> = self.state.read(self.engine, owner)?;
        match written {
            Some(written) if written.version != VERSION => {
                let reason = format!("has version {}, and this program supports version {VERSION}", written.version);
                Err(KernelError::new(self.path(), reason, "use the program that wrote it, or remove it"))
            }
            Some(written) if written.place == self.place => Ok(written),
            _ => Ok(self.written(BTreeSet::new(), BTreeSet::new())),
        }
    }

    fn written(&self, services: BTreeSet<ServiceKey>, sync: BTreeSet<SyncRole>) -> RecordFile {
        RecordFile { version: VERSION, place: self.place.clone(), owner: self.owner.clone(), services, sync }
    }
}

/// Services that the records say are ours though nobody directs here, by engine: what one left that has ended. Who only looks makes no
/// files; what cannot be read is nothing.
pub fn left_behind(settings: &DirectorSettings) -> Vec<(&'static str, Vec<ServiceKey>)> {
    let Ok(state) = State::look_at(RUN) else { return Vec::new() };
    let found: Vec<(&'static str, Vec<ServiceKey>)> = choose::NAMES
        .into_iter()
        .map(|engine| {
            let record = EngineRecord::open_in(state.clone(), engine, settings);
            (engine, record.of(&record.owner).map_or(Vec::new(), |written| written.services.into_iter().collect()))
        })
        .filter(|(_, keys)| !keys.is_empty())
        .collect();
    let is_charged = || EngineRecord::open_in(state.clone(), "", settings).charge(Duration::ZERO).is_err();
    if found.is_empty() || is_charged() { Vec::new() } else { found }
}

impl Opened<'_> {
    /// Writes what is ours from now on.
    ///
    /// # Errors
    /// When it cannot be written; then the record is as it was.
    pub fn write(&mut self, services: BTreeSet<ServiceKey>, sync: BTreeSet<SyncRole>) -> Result<(), KernelError> {
        let EngineRecord { state, engine, owner, .. } = self.record;
        if self.unreadable.is_none() && (&services, &sync) == (&self.owners.ours, &self.sync) {
            return Ok(());
        }
        let written = self.record.written(services, sync);
        if written.services.is_empty() && written.sync.is_empty() {
            state.remove(engine, owner)?;
        } else {
            state.write(engine, owner, &written)?;
        }
        (self.owners.ours, self.sync, self.unreadable) = (written.services, written.sync, None);
        Ok(())
    }
}
