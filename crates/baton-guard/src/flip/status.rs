//! What is so.

use baton_kernel::connections;
use serde::Serialize;

use super::stored::Stored;
use super::{Check, Colour, FlipMethod, FlipMethodKind, Flips, KIND, Name, Observed, Setting, by_kind, localnet, nft};
use crate::KernelError;
use crate::hold::target::Target;

/// One flip, as it is.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Its name.
    pub name: Name,
    /// By which method it is set up.
    pub method: FlipMethodKind,
    /// What clients dial; `None` when nobody remembers.
    pub listen: Option<Target>,
    /// Whether the kernel has what belongs there, whole or in part.
    #[serde(skip)]
    pub is_there: bool,
    /// Which instance gets new connections, as the kernel has it.
    pub active: Option<Colour>,
    /// The two instances, blue first; none when nobody remembers.
    pub instances: Vec<InstanceStatus>,
    /// What is wrong, with what helps.
    pub problem: Option<String>,
}

/// One of the two.
#[derive(Clone, Debug, Serialize)]
pub struct InstanceStatus {
    /// Which.
    pub colour: Colour,
    /// Where it listens.
    pub addresses: Vec<Target>,
    /// Whether it takes a connection.
    pub answers: bool,
    /// Connections that are open at its addresses on this machine, whichever way they came; `None` where that cannot be counted.
    pub connections: Option<usize>,
    /// New connections that were sent to it since the flip was set up, where the method counts them (`sk_lookup`).
    pub taken: Option<u64>,
}

/// The name of a flip whose file cannot be read, and why.
pub type UnreadableFlip = (Name, KernelError);

impl Flips {
    /// All flips: those that are remembered, and those that the kernel has; and why files cannot be read, by the names of their flips.
    ///
    /// # Errors
    /// When the folder cannot be read, or without the right to see what the kernel has. What else of the kernel cannot be read is
    /// said in the flip's line.
    pub fn status(&self) -> Result<(Vec<Status>, Vec<UnreadableFlip>), KernelError> {
        let (mut all, mut unreadable) = (Vec::new(), Vec::new());
        let names = self.state.names(KIND)?;
        for name in names.iter().filter_map(|name| name.parse::<Name>().ok()) {
            match self.stored(&name) {
                Ok(None) => {}
                Ok(Some(stored)) => all.push(observed(&stored, by_kind(stored.method).as_ref())),
                Err(fault) => {
                    let remedy = format!("run `baton flip remove --name {name}` and the same `baton flip init` again");
                    unreadable.push((name, KernelError { remedy, ..fault }));
                }
            }
        }
        for kind in FlipMethodKind::ALL {
            for name in by_kind(kind).names()? {
                if all.iter().all(|known| known.name != name || known.method != kind) {
                    all.push(forgotten(name, kind));
                }
            }
        }
        Ok((all, unreadable))
    }
}

fn observed(stored: &Stored, method: &dyn FlipMethod) -> Status {
    let setting = &stored.setting;
    let name = &setting.name;
    let mend = format!("`baton flip to blue --name {name}` or the same `baton flip init` sets it up again");
    let found = method.observe(setting);
    let is_there = !matches!(found, Ok(Observed::Absent));
    let (active, problem) = match found {
        Ok(Observed::Active(colour)) if method.kind().needs_localnet(setting) && !localnet::is_on() => {
            let why = "net.ipv4.conf.all.route_localnet was switched off: remote connections are dropped";
            (Some(colour), Some(format!("{why}; run the same `baton flip init` to repair it")))
        }
        Ok(Observed::Active(colour)) if !method.kind().needs_localnet(setting) && has_guard(method, name) => {
            let why =
                "the loopback guard of other addresses is left, which drops packets from other machines to 127.0.0.0/8";
            (Some(colour), Some(format!("{why}; run the same `baton flip init` to remove it")))
        }
        Ok(Observed::Active(colour)) => (Some(colour), None),
        Ok(Observed::Halfway(colour)) => (Some(colour), Some(format!("a change was interrupted; {mend}"))),
        Ok(Observed::Absent) => {
            let exposed = if method.kind().needs_localnet(setting) && localnet::is_on() {
                ", and 127.0.0.0/8 can be reached from the network (net.ipv4.conf.all.route_localnet)"
            } else {
                ""
            };
            (None, Some(format!("it is missing in the kernel and has no effect{exposed}; {mend}")))
        }
        Ok(Observed::Broken(why)) if stored.is_begun => {
            let meanwhile = "new connections may still go to the previous addresses";
            (None, Some(format!("a change was interrupted ({why}), and {meanwhile}; {mend}")))
        }
        Ok(Observed::Broken(why)) => (None, Some(format!("{why}; {mend}"))),
        Err(fault) => (None, Some(fault.to_string())),
    };
    let instances = Colour::BOTH.map(|colour| InstanceStatus {
        colour,
        addresses: setting.instance(colour).to_vec(),
        // Before we connect ourselves.
        connections: open(method.kind(), setting, colour),
        taken: method.taken(setting, colour),
        answers: Check::default().ask(setting, colour).is_ok(),
    });
    let (name, listen) = (name.clone(), Some(setting.listen));
    Status { name, method: method.kind(), listen, is_there, active, instances: instances.into(), problem }
}

/// Where that cannot be read, there is none to be told of.
fn has_guard(method: &dyn FlipMethod, name: &Name) -> bool {
    method.has_guard(name).unwrap_or_default()
}

fn forgotten(name: Name, kind: FlipMethodKind) -> Status {
    let problem = format!("it is in the kernel without a file; remove it with `baton flip remove --name {name}`");
    Status {
        name,
        method: kind,
        listen: None,
        is_there: true,
        active: None,
        instances: Vec::new(),
        problem: Some(problem),
    }
}

/// Connections that are open at the addresses of an instance; `None` where those that came by the flip have the address that was dialled.
pub(super) fn open(kind: FlipMethodKind, setting: &Setting, colour: Colour) -> Option<usize> {
    if !kind.translates() {
        return None;
    }
    setting.instance(colour).iter().map(|place| connections::count(place.address, place.port).ok()).sum()
}

impl std::fmt::Display for Status {
    /// Some lines, for an operator.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.name)?;
        match (self.listen, self.active) {
            (Some(listen), Some(active)) => {
                writeln!(f, "new connections to {listen} go to {active} (method {})", self.method)?
            }
            (Some(listen), None) if self.is_there => {
                writeln!(f, "{listen}, not as it was set up (method {})", self.method)?
            }
            (Some(listen), None) => writeln!(f, "{listen}, not active (method {})", self.method)?,
            (None, _) => writeln!(f, "method {}", self.method)?,
        }
        for instance in &self.instances {
            let is_active = if self.active == Some(instance.colour) { "active" } else { "idle" };
            let answers = if instance.answers { "answers" } else { "does not respond" };
            write!(f, "  {:5}  {}  {is_active}, {answers}", instance.colour.word(), nft::places(&instance.addresses))?;
            match (instance.connections, instance.taken) {
                (Some(1), _) => writeln!(f, ", 1 connection open")?,
                (Some(count), _) => writeln!(f, ", {count} connections open")?,
                (None, Some(1)) => writeln!(f, ", 1 connection since it was set up")?,
                (None, Some(count)) => writeln!(f, ", {count} connections since it was set up")?,
                (None, None) => writeln!(f)?,
            }
        }
        match &self.problem {
            Some(problem) => writeln!(f, "  problem: {problem}"),
            None => Ok(()),
        }
    }
}
