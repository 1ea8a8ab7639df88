//! What an engine does: it shows what is in the kernel, and takes steps.

use std::net::SocketAddr;

use crate::settings::{DirectorSettings, SyncRole, Tune};
use crate::{Destination, KernelError, Refused, Service, ServiceKey};

/// A service as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Its settings.
    pub service: Service,
    /// What it has that a [`Service`] cannot say, in words such as `scheduler rr`: then `service` is the nearest to it, and who
    /// wants the key sets all of it anew. Empty for what was set by an engine.
    pub beyond: Vec<String>,
}

impl From<Service> for Observed {
    fn from(service: Service) -> Self {
        Self { service, beyond: Vec::new() }
    }
}

/// What an engine found of the settings of the whole network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// What is to be set.
    pub tunes: Vec<Tune>,
    /// What cannot be set, one sentence each.
    pub refused: Vec<String>,
}

/// One change to the kernel. The steps of a plan are in the order in which they are safe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelChange {
    /// A new service, without its destinations, which are steps of their own.
    AddService(Service),
    /// Other settings of a service that is there; its destinations and connections stay.
    EditService(Service),
    /// A service goes, with its destinations; what happens to its connections, the engine says ([`Engine::removal`]).
    RemoveService(ServiceKey),
    /// A new destination.
    AddDestination(ServiceKey, Destination),
    /// Other settings of a destination that is there; its connections stay.
    EditDestination(ServiceKey, Destination),
    /// A destination goes.
    RemoveDestination(ServiceKey, SocketAddr),
}

impl KernelChange {
    /// The service that it is about.
    pub fn key(&self) -> ServiceKey {
        match self {
            KernelChange::AddService(service) | KernelChange::EditService(service) => service.key,
            KernelChange::RemoveService(key)
            | KernelChange::AddDestination(key, _)
            | KernelChange::EditDestination(key, _)
            | KernelChange::RemoveDestination(key, _) => *key,
        }
    }
}

/// What the kernel counted of a service or of a destination. They only grow as long as it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that were scheduled.
    pub connections: u64,
    /// Packets from clients.
    pub packets_in: u64,
    /// Packets to clients, where they come back this way.
    pub packets_out: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients, where they come back this way.
    pub bytes_out: u64,
}

/// What the kernel knows of a service now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Which service.
    pub key: ServiceKey,
    /// Its own counters.
    pub counters: Counters,
    /// Its destinations.
    pub destinations: Vec<DestinationFigures>,
}

/// What the kernel knows of a destination now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationFigures {
    /// Which one.
    pub address: SocketAddr,
    /// Its counters.
    pub counters: Counters,
    /// Connections in the state "established".
    pub active: u32,
    /// Connections in other states.
    pub inactive: u32,
    /// Of persistence: clients that are bound to it.
    pub persistent: u32,
}

/// Who balances in the kernel.
pub trait Engine: Send {
    /// As an operator calls it: `ipvs`, `xdp`.
    fn name(&self) -> &'static str;

    /// All services that are there, ours and others', with the settings that this engine knows.
    ///
    /// # Errors
    /// What the kernel refuses, with what helps.
    fn observe(&mut self) -> Result<Vec<Observed>, KernelError>;

    /// What it cannot do of what is asked for, one sentence each; nothing is changed by asking.
    fn judge(&self, service: &Service) -> Vec<String>;

    /// These steps are about to be taken, in this order: does what is done once for all of them.
    ///
    /// # Errors
    /// What the kernel refuses, with what helps; then none of them can be taken.
    fn begin(&mut self, steps: &[&KernelChange]) -> Result<(), KernelError> {
        let _ = steps;
        Ok(())
    }

    /// Takes one of the steps that were begun.
    ///
    /// # Errors
    /// What the kernel refuses, with what helps; this change was then not made.
    fn take(&mut self, step: &KernelChange) -> Result<(), KernelError>;

    /// The steps are taken: does the rest, once for all of them.
    ///
    /// # Errors
    /// What the kernel refuses, with what helps; it is tried again by [`refresh`](Self::refresh).
    fn finish(&mut self) -> Result<(), KernelError> {
        Ok(())
    }

    /// What happens to the connections of a destination or a service that is removed, as a sentence.
    fn removal(&self) -> &'static str;

    /// What it counted.
    ///
    /// # Errors
    /// What the kernel refuses, with what helps.
    fn figures(&mut self) -> Result<Vec<Figures>, KernelError>;

    /// Which settings of the whole network namespace differ from what is asked for. `started` are the connection sync daemons
    /// that are ours. An engine without such settings has nothing to do.
    ///
    /// # Errors
    /// What the kernel refuses, with what helps.
    fn tuning(&mut self, settings: &DirectorSettings, started: &[SyncRole]) -> Result<Tuning, KernelError> {
        let _ = (settings, started);
        Ok(Tuning::default())
    }

    /// Changes one of them.
    ///
    /// # Errors
    /// What the kernel refuses, with what helps; then it is as it was.
    fn tune(&mut self, tune: &Tune) -> Result<(), KernelError> {
        let _ = tune;
        Ok(())
    }

    /// What is here that is against settings that it does not work by yet, and against services by them; nothing is changed by asking.
    ///
    /// # Errors
    /// What the kernel refuses, with what helps.
    fn look(&mut self, settings: &DirectorSettings, desired: &[Service]) -> Result<Vec<Refused>, KernelError> {
        let _ = (settings, desired);
        Ok(Vec::new())
    }

    /// What it would change for these settings besides services, a sentence each, such as the interfaces that it is on; nothing is changed
    /// by asking.
    ///
    /// # Errors
    /// What the kernel refuses, with what helps.
    fn foresee(&mut self, settings: &DirectorSettings, desired: &[Service]) -> Result<Vec<String>, KernelError> {
        let _ = (settings, desired);
        Ok(Vec::new())
    }

    /// Whether weight 0 keeps away from a destination also the clients that stick to it (persistence), by these settings once they are in
    /// force. Where it does not, who may not get clients any more has to be removed.
    fn keeps_away(&self, settings: &DirectorSettings) -> bool {
        let _ = settings;
        true
    }

    /// What an operator should know of these settings and services, one sentence each.
    fn advise(&self, settings: &DirectorSettings, desired: &[Service]) -> Vec<String> {
        let _ = (settings, desired);
        Vec::new()
    }

    /// Works by these settings from now on, as far as they are for this engine alone.
    ///
    /// # Errors
    /// What the kernel refuses, with what helps; then it works by those it had.
    fn set(&mut self, settings: &DirectorSettings) -> Result<(), KernelError> {
        let _ = settings;
        Ok(())
    }

    /// Looks again at what others change and this engine depends on, such as the MAC addresses of destinations; to be called every
    /// few seconds. Gives what is in the way now, a sentence each; empty is well.
    ///
    /// # Errors
    /// What the kernel refuses, with what helps.
    fn refresh(&mut self) -> Result<Vec<String>, KernelError> {
        Ok(Vec::new())
    }

    /// 'mode direct': its setup, as a sentence for an operator, such as on which interfaces; empty when there is nothing to say.
    fn manner(&self) -> String {
        String::new()
    }

    /// Does what takes root's rights, and gives what is its own to a user and a group: for a program that gives up root and perhaps its
    /// file system, and keeps CAP_NET_ADMIN.
    ///
    /// # Errors
    /// Without the right to.
    fn give_to(&mut self, user: u32, group: u32) -> Result<(), KernelError> {
        let _ = (user, group);
        Ok(())
    }

    /// Nothing is asked for, for now: removes what this engine needs besides services, after the last of them was removed, as far as this
    /// process can make it again.
    ///
    /// # Errors
    /// What the kernel refuses, with what helps.
    fn pause(&mut self) -> Result<(), KernelError> {
        self.leave()
    }

    /// Removes what this engine needs besides services, after the last of them was removed.
    ///
    /// # Errors
    /// What the kernel refuses, with what helps.
    fn leave(&mut self) -> Result<(), KernelError> {
        Ok(())
    }
}
