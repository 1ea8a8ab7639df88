//! `baton flip`: two instances of a server, blue and green, of which one gets the new connections.
//!
//! [`Flips`] does what an operator asks for: set up, switch, the whole cycle of a reload, look, remove. How connections are sent is
//! a [`Method`]'s business. What the kernel has is the truth; a small file under `/run/baton-guard` remembers what was asked
//! for, so that a command need not repeat it. Every change is one step of the kernel's, so that there is no half of one after a
//! crash; who works on a flip has its lock.

mod cycle;
mod ipset;
mod iptables;
mod localnet;
pub mod method;
#[cfg(not(feature = "bpf"))]
mod missing;
mod nft;
pub mod probe;
mod rules;
mod setting;
#[cfg(feature = "bpf")]
mod sk_lookup;
mod status;
mod stored;

pub use cycle::Cycle;
pub use method::{Kind, Method, Observed, Step};
pub use probe::Check;
pub use setting::{Colour, NAME_MAX, Name, Setting};
pub use status::Status;

use crate::Fault;
use baton_kernel::state::{Lock, State};
use stored::Stored;

/// What files and locks of flips are called.
const KIND: &str = "flip";
/// The lock under which `route_localnet` is changed. No flip has this name: it is too long.
const LOCALNET_LOCK: &str = "route-localnet-of-all";
/// The file that is there while `route_localnet` is on by us. It is no flip's own: whichever goes last switches it off.
const LOCALNET: &str = "localnet";
const OPENED: &str = "opened";

/// The flips of this network namespace.
#[derive(Debug)]
pub struct Flips {
    state: State,
}

/// What [`Flips::init`] is to do.
#[derive(Clone, Debug)]
pub struct Init {
    /// The flip.
    pub setting: Setting,
    /// By which method; `None`: the one it is set up by, else the first that works here.
    pub method: Option<Kind>,
    /// Which instance gets new connections; `None`: the one that gets them now, else one that answers.
    pub active: Option<Colour>,
    /// How to see whether it answers.
    pub check: Check,
    /// Also when it does not answer.
    pub force: bool,
}

/// What [`Flips::switch`] is to do.
#[derive(Clone, Debug)]
pub struct Switch {
    /// Which flip.
    pub name: Name,
    /// To which instance.
    pub to: Colour,
    /// How to see whether it answers.
    pub check: Check,
    /// Also when it does not.
    pub force: bool,
}

/// What was done, in lines for an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// One sentence each.
    pub lines: Vec<String>,
}

impl Done {
    fn line(text: impl Into<String>) -> Done {
        Done { lines: vec![text.into()] }
    }

    fn add(&mut self, text: impl Into<String>) {
        self.lines.push(text.into());
    }
}

/// The method of a kind.
fn by_kind(kind: Kind) -> Box<dyn Method> {
    match kind {
        Kind::Nft => Box::new(nft::Nft),
        Kind::Ipset => Box::new(ipset::Ipset),
        Kind::Iptables => Box::new(iptables::Iptables),
        #[cfg(feature = "bpf")]
        Kind::SkLookup => Box::new(sk_lookup::SkLookup),
        #[cfg(not(feature = "bpf"))]
        Kind::SkLookup => Box::new(missing::Missing(kind)),
    }
}

/// The first method that works here, and why it is that one.
fn choose(setting: &Setting) -> Result<(Box<dyn Method>, String), Fault> {
    let mut refused = Vec::new();
    for kind in [Kind::Nft, Kind::Ipset, Kind::Iptables] {
        let method = by_kind(kind);
        match method.check(setting) {
            Ok(()) if refused.is_empty() => return Ok((method, format!("method {kind}: it works here"))),
            Ok(()) => return Ok((method, format!("method {kind}: {}", refused.join("; ")))),
            Err(fault) => refused.push(format!("{kind} does not work here ({fault})")),
        }
    }
    Err(Fault::new("no method works here", refused.join("; "), ""))
}

impl Flips {
    /// Those of the calling thread's network namespace.
    ///
    /// # Errors
    /// Without the right to `/run/baton-guard`.
    pub fn open() -> Result<Flips, Fault> {
        Ok(Flips { state: State::open(crate::RUN)? })
    }

    fn lock(&self, name: &Name) -> Result<Lock, Fault> {
        self.state.try_lock(KIND, name.as_str())?.ok_or_else(|| {
            Fault::new(format!("flip {name}"), "another `baton flip` is at work on it", "wait until it has ended")
        })
    }

    fn stored(&self, name: &Name) -> Result<Option<Stored>, Fault> {
        self.state.read(KIND, name.as_str())
    }

    fn known(&self, name: &Name) -> Result<Stored, Fault> {
        self.stored(name)?.ok_or_else(|| {
            let names = self.state.names(KIND).unwrap_or_default();
            let remedy = match names.as_slice() {
                [] => format!("`baton flip init --name {name} --listen … --blue … --green …` makes one"),
                some => format!("there are: {}", some.join(", ")),
            };
            Fault::new(format!("flip {name}"), "there is none of this name", remedy)
        })
    }

    fn store(&self, stored: &Stored) -> Result<(), Fault> {
        self.state.write(KIND, stored.setting.name.as_str(), stored)
    }

    /// What [`Flips::init`] would do, with the reason for the method.
    ///
    /// # Errors
    /// As [`Flips::init`], but for missing rights.
    pub fn plan_init(&self, init: &Init) -> Result<Done, Fault> {
        let setting = &init.setting;
        let stored = self.stored(&setting.name)?;
        let (method, reason) = match init.method.or(stored.as_ref().map(|stored| stored.method)) {
            Some(kind) => (by_kind(kind), format!("method {kind}, as asked for")),
            // Without rights nothing can be tried; then the plan is that of the first.
            None => {
                choose(setting).unwrap_or_else(|fault| (by_kind(Kind::Nft), format!("method nft, perhaps: {fault}")))
            }
        };
        let mut done = Done::line(reason);
        if method.kind().needs_localnet(setting) && !localnet::is_on() {
            done.add("sysctl net.ipv4.conf.all.route_localnet=1, after the rules that guard it");
        }
        let active = init.active.or(stored.map(|stored| stored.active)).unwrap_or(Colour::Blue);
        done.lines.extend(method.plan(setting, Step::Install(active)));
        done.lines.extend(setting.remarks());
        Ok(done)
    }

    /// Sets a flip up, or sees that it is.
    ///
    /// # Errors
    /// When it cannot be done, or the active instance does not answer; then nothing was changed.
    pub fn init(&self, init: &Init) -> Result<Done, Fault> {
        let setting = &init.setting;
        let _lock = self.lock(&setting.name)?;
        let before = self.stored(&setting.name)?;
        let (method, reason) = self.method_for(init, before.as_ref())?;
        let observed = match &before {
            Some(stored) => method.observe(&stored.setting)?,
            None => method.observe(setting)?,
        };
        let current = match observed {
            Observed::Active(colour) => Some(colour),
            Observed::Absent | Observed::Broken(_) => None,
        };
        let is_same = before.as_ref().is_some_and(|stored| stored.setting == *setting);
        if let (true, Some(current)) = (is_same, current)
            && init.active.is_none_or(|active| active == current)
            && (!method.kind().needs_localnet(setting) || localnet::is_on())
        {
            return Ok(Done::line(format!("{} is set up already, and {current} is active", setting.name)));
        }
        let wished = init.active.or(current).or(before.as_ref().map(|stored| stored.active));
        let active = answering(init, wished)?;
        let needs_localnet = method.kind().needs_localnet(setting);
        if needs_localnet && !localnet::is_on() {
            // Found out before anything is changed.
            localnet::can_switch()?;
        }
        self.store(&Stored { setting: setting.clone(), method: method.kind(), active })?;
        // What was needed before and is not any more is closed while its guard stands.
        let closed = if needs_localnet { Ok(()) } else { self.close_localnet(&setting.name) };
        let put = closed.and_then(|()| match current {
            Some(current) if is_same && current != active => method.switch(setting, active),
            Some(_) if is_same => Ok(()),
            Some(_) | None => method.install(setting, active),
        });
        let installed = put.and_then(|()| self.open_localnet(setting, method.as_ref()));
        if let Err(fault) = installed {
            // What was there before is there still; so is what is remembered of it.
            match &before {
                Some(before) => self.store(before)?,
                None => self.state.remove(KIND, setting.name.as_str())?,
            }
            return Err(fault);
        }
        let mut done = Done::line(reason);
        done.add(format!(
            "{}: new connections to {} go to {active} ({})",
            setting.name,
            setting.listen,
            nft::places(setting.instance(active))
        ));
        done.lines.extend(setting.remarks());
        Ok(done)
    }

    fn method_for(&self, init: &Init, before: Option<&Stored>) -> Result<(Box<dyn Method>, String), Fault> {
        let name = &init.setting.name;
        match (before, init.method) {
            (Some(before), Some(asked)) if before.method != asked => Err(Fault::new(
                format!("flip {name}"),
                format!("it is set up by the method {}", before.method),
                format!("`baton flip remove --name {name}` first: two methods at once would hide each other"),
            )),
            (Some(Stored { method, .. }), _) => Ok((by_kind(*method), format!("method {method}, as it was set up"))),
            (None, Some(kind)) => {
                let method = by_kind(kind);
                method.check(&init.setting)?;
                Ok((method, format!("method {kind}, as asked for")))
            }
            (None, None) => choose(&init.setting),
        }
    }

    /// Lets clients from elsewhere reach loopback addresses, once the rules are there that guard them.
    fn open_localnet(&self, setting: &Setting, method: &dyn Method) -> Result<(), Fault> {
        if !method.kind().needs_localnet(setting) {
            return Ok(());
        }
        let _lock = self.state.lock(KIND, LOCALNET_LOCK)?;
        if localnet::is_on() {
            return Ok(());
        }
        // Remembered before it is so: what is forgotten would stay on.
        self.state.write(LOCALNET, OPENED, &true)?;
        localnet::switch(true).inspect_err(|_| {
            // The first fault is the one to tell.
            let _ = method.remove(&setting.name);
        })
    }

    /// Undoes [`open_localnet`](Self::open_localnet), whichever flip did it, unless another one than this needs it.
    fn close_localnet(&self, but: &Name) -> Result<(), Fault> {
        let lock = self.state.lock(KIND, LOCALNET_LOCK)?;
        // What cannot be read was written by us all the same.
        if self.state.read(LOCALNET, OPENED).unwrap_or(Some(true)).is_none() {
            lock.remove();
            return Ok(());
        }
        let needs = |name: &String| match self.state.read::<Stored>(KIND, name) {
            Ok(Some(other)) => other.method.needs_localnet(&other.setting),
            Ok(None) => false,
            // It may.
            Err(_) => true,
        };
        if self.state.names(KIND)?.iter().filter(|name| *name != but.as_str()).any(needs) {
            return Ok(());
        }
        localnet::switch(false)?;
        self.state.remove(LOCALNET, OPENED)?;
        lock.remove();
        Ok(())
    }

    /// What [`Flips::switch`] would do.
    ///
    /// # Errors
    /// Without such a flip.
    pub fn plan_switch(&self, switch: &Switch) -> Result<Done, Fault> {
        let stored = self.known(&switch.name)?;
        let mut done = Done::default();
        if !switch.force {
            done.add(format!("see whether {} answers", switch.to));
        }
        done.lines.extend(by_kind(stored.method).plan(&stored.setting, Step::Switch(switch.to)));
        Ok(done)
    }

    /// Sends new connections to one of the two.
    ///
    /// # Errors
    /// When the instance does not answer, or the kernel refuses; then nothing was changed.
    pub fn switch(&self, switch: &Switch) -> Result<Done, Fault> {
        let _lock = self.lock(&switch.name)?;
        let stored = self.known(&switch.name)?;
        self.switch_locked(stored, switch)
    }

    fn switch_locked(&self, stored: Stored, switch: &Switch) -> Result<Done, Fault> {
        let (method, setting, to) = (by_kind(stored.method), &stored.setting, switch.to);
        let observed = method.observe(setting)?;
        if observed == Observed::Active(to) && method.kind().translates() {
            return Ok(Done::line(format!("{to} is active already")));
        }
        if !switch.force {
            switch.check.ask(setting, to).map_err(|why| not_answering(setting, to, why))?;
        }
        let mut done = Done::default();
        match observed {
            Observed::Active(_) => method.switch(setting, to)?,
            Observed::Absent | Observed::Broken(_) => {
                let why =
                    if let Observed::Broken(why) = observed { why } else { "nothing of it was in the kernel".into() };
                method.install(setting, to)?;
                self.open_localnet(setting, method.as_ref())?;
                done.add(format!("{}: set up anew, for {why}", setting.name));
            }
        }
        let listen = setting.listen;
        done.add(format!(
            "{}: new connections to {listen} go to {to} ({})",
            setting.name,
            nft::places(setting.instance(to))
        ));
        self.store(&Stored { active: to, ..stored })?;
        Ok(done)
    }

    /// What [`Flips::remove`] would do.
    ///
    /// # Errors
    /// When the file of the flip cannot be read.
    pub fn plan_remove(&self, name: &Name) -> Result<Done, Fault> {
        let Some(stored) = self.stored(name)? else {
            return Ok(Done::line(format!("remove whatever is there of {name}, by any method")));
        };
        let mut done = Done::default();
        if stored.method.needs_localnet(&stored.setting) {
            done.add("sysctl net.ipv4.conf.all.route_localnet=0, unless it was on before or another flip needs it");
        }
        done.lines.extend(by_kind(stored.method).plan(&stored.setting, Step::Remove));
        Ok(done)
    }

    /// Removes a flip with all that it has in the kernel, also when nobody remembers it.
    ///
    /// # Errors
    /// What could not be removed; the rest was.
    pub fn remove(&self, name: &Name) -> Result<Done, Fault> {
        let lock = self.lock(name)?;
        // A file that cannot be read is no reason to leave rules behind.
        let stored = self.stored(name).unwrap_or_default();
        let mut was_there = stored.is_some();
        let mut failed = None;
        // Nobody may reach the loopback once its guard is gone: while this fails, the guard stays.
        self.close_localnet(name)?;
        for kind in Kind::ALL {
            let method = by_kind(kind);
            let is_its = stored.as_ref().is_some_and(|stored| stored.method == kind);
            // Of methods that cannot even be asked here, nothing is there.
            let found = is_its || method.names().is_ok_and(|names| names.contains(name));
            was_there |= found;
            if found && let Err(fault) = method.remove(name) {
                failed.get_or_insert(fault);
            }
        }
        if let Some(fault) = failed {
            return Err(fault);
        }
        self.state.remove(KIND, name.as_str())?;
        lock.remove();
        Ok(Done::line(if was_there { format!("{name} is removed") } else { format!("there was nothing of {name}") }))
    }
}

/// The instance that is wished for, if it answers; without a wish, one that does.
fn answering(init: &Init, wished: Option<Colour>) -> Result<Colour, Fault> {
    let setting = &init.setting;
    if init.force {
        return Ok(wished.unwrap_or(Colour::Blue));
    }
    let ask = |colour| init.check.ask(setting, colour);
    match wished {
        Some(colour) => ask(colour).map(|()| colour).map_err(|why| not_answering(setting, colour, why)),
        None => match (ask(Colour::Blue), ask(Colour::Green)) {
            (Ok(()), _) => Ok(Colour::Blue),
            (Err(_), Ok(())) => Ok(Colour::Green),
            (Err(blue), Err(green)) => Err(not_answering(setting, Colour::Blue, format!("{blue}; {green}"))),
        },
    }
}

fn not_answering(setting: &Setting, colour: Colour, why: String) -> Fault {
    let remedy = format!("nothing was changed; start it, or use --force to send connections to {colour} all the same");
    Fault::new(format!("flip {}", setting.name), why, remedy)
}
