//! `baton flip`: two instances of a server, blue and green, of which one gets the new connections.
//!
//! [`Flips`] does what an operator asks for: set up, switch, the whole cycle of a reload, look, remove. How connections are sent is
//! a [`FlipMethod`]'s business. What the kernel has is the truth; a small file under `/run/baton-guard` remembers what was asked
//! for, so that a command need not repeat it. Every change is one step of the kernel's, so that there is no half of one after a
//! crash; who works on a flip has its lock.

mod act;
mod command;
mod cycle;
mod ipset;
mod iptables;
mod localnet;
pub mod method;
#[cfg(not(feature = "bpf"))]
mod missing;
mod nft;
mod plan;
pub mod probe;
mod remove;
mod rules;
mod setting;
#[cfg(feature = "bpf")]
mod sk_lookup;
mod status;
mod stored;

pub use cycle::FlipCycle;
pub use method::{FlipMethod, FlipMethodKind, Observed, PlanStep};
pub use probe::{Check, ProbeKind};
pub use setting::{Colour, NAME_MAX, Name, Setting, place};
pub use status::Status;

use crate::KernelError;
use baton_kernel::state::{Lock, State};
use stored::Stored;

/// What files and locks of flips are called.
const KIND: &str = "flip";
/// The lock of whoever tries a method, or looks at the addresses of all flips and writes another one. No flip has this name: it is
/// too long.
const COMMON_LOCK: &str = "addresses-and-trials-of-all";

/// The flips of this network namespace.
#[derive(Debug)]
pub struct Flips {
    state: State,
}

/// Nobody else works on a flip while this lives. The lock's file goes with it where no flip is named.
struct AtWork<'a> {
    flips: &'a Flips,
    name: &'a Name,
    lock: Option<Lock>,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let is_none = matches!(self.flips.stored(self.name), Ok(None));
        self.lock.take().filter(|_| is_none).into_iter().for_each(Lock::remove);
    }
}

/// What [`Flips::init`] is to do.
#[derive(Clone, Debug)]
pub struct Init {
    /// The flip.
    pub setting: Setting,
    /// By which method; `None`: the one it is set up by, else the first that works here.
    pub method: Option<FlipMethodKind>,
    /// Which instance gets new connections; `None`: the one that gets them now, else one that answers.
    pub active: Option<Colour>,
    /// How to see whether it answers.
    pub check: Check,
    /// Also if it does not respond.
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
pub struct FlipReport {
    /// One sentence each.
    pub lines: Vec<String>,
}

impl FlipReport {
    fn line(text: impl Into<String>) -> FlipReport {
        FlipReport { lines: vec![text.into()] }
    }

    fn add(&mut self, text: impl Into<String>) {
        self.lines.push(text.into());
    }
}

/// The method of a kind.
fn by_kind(kind: FlipMethodKind) -> Box<dyn FlipMethod> {
    match kind {
        FlipMethodKind::Nft => Box::new(nft::Nft),
        FlipMethodKind::Ipset => Box::new(ipset::Ipset),
        FlipMethodKind::Iptables => Box::new(iptables::IptablesMethod),
        #[cfg(feature = "bpf")]
        FlipMethodKind::SkLookup => Box::new(sk_lookup::SkLookup),
        #[cfg(not(feature = "bpf"))]
        FlipMethodKind::SkLookup => Box::new(missing::UnavailableMethod(kind)),
    }
}

/// The first method that works here, and why it is that one.
fn choose(setting: &Setting) -> Result<(Box<dyn FlipMethod>, String), KernelError> {
    let mut refused = Vec::new();
    for kind in [FlipMethodKind::Nft, FlipMethodKind::Ipset, FlipMethodKind::Iptables] {
        let method = by_kind(kind);
        match method.check(setting) {
            Ok(()) if refused.is_empty() => return Ok((method, format!("method {kind}: works here"))),
            Ok(()) => return Ok((method, format!("method {kind}: {}", refused.join("; ")))),
            Err(fault) => refused.push(format!("{kind} does not work here ({fault})")),
        }
    }
    Err(KernelError::new("no method works here", refused.join("; "), ""))
}

impl Flips {
    /// Those of the calling thread's network namespace.
    ///
    /// # Errors
    /// Without the right to `/run/baton-guard`.
    pub fn open() -> Result<Flips, KernelError> {
        Ok(Flips { state: State::open(crate::RUN)? })
    }

    /// Those that are there, to look at them alone: the folder is not made for it.
    ///
    /// # Errors
    /// Without the right to `/run/baton-guard`.
    pub fn look_at() -> Result<Flips, KernelError> {
        Ok(Flips { state: State::look_at(crate::RUN)? })
    }

    fn lock<'a>(&'a self, name: &'a Name) -> Result<AtWork<'a>, KernelError> {
        let lock = self.state.try_lock(KIND, name.as_str())?.ok_or_else(|| {
            KernelError::new(
                format!("flip {name}"),
                "another `baton flip` is changing it",
                "wait until it has finished",
            )
        })?;
        Ok(AtWork { flips: self, name, lock: Some(lock) })
    }

    /// Tries whether a method works, alone.
    fn alone<T>(&self, work: impl FnOnce() -> T) -> Result<T, KernelError> {
        // Where nobody has been at work, nobody is.
        let lock = if self.state.is_there() { Some(self.state.lock(KIND, COMMON_LOCK)?) } else { None };
        let done = work();
        lock.into_iter().for_each(Lock::remove);
        Ok(done)
    }

    fn stored(&self, name: &Name) -> Result<Option<Stored>, KernelError> {
        self.state.read(KIND, name.as_str())
    }

    fn known(&self, name: &Name) -> Result<Stored, KernelError> {
        self.stored(name)?.ok_or_else(|| {
            let names = self.state.names(KIND).unwrap_or_default();
            let remedy = match names.as_slice() {
                [] => format!("create it with `baton flip init --name {name} --listen … --blue … --green …`"),
                some => format!("existing flips: {}", some.join(", ")),
            };
            KernelError::new(format!("flip {name}"), "it does not exist", remedy)
        })
    }

    fn store(&self, stored: &Stored) -> Result<(), KernelError> {
        self.state.write(KIND, stored.setting.name.as_str(), stored)
    }

    /// Sets a flip up, or sees that it is.
    ///
    /// # Errors
    /// When it cannot be done, the active instance does not answer, or another flip is about the same address; then nothing was
    /// changed.
    pub fn init(&self, init: &Init) -> Result<FlipReport, KernelError> {
        let setting = &init.setting;
        let _lock = self.lock(&setting.name)?;
        let now = self.look(init)?;
        if now.is_done(init) {
            if let Some(before) = now.before.as_ref().filter(|before| before.is_begun) {
                self.store(&Stored { is_begun: false, ..before.clone() })?;
            }
            return Ok(FlipReport::line(now.already(setting)));
        }
        let active = answering(init, now.wished(init))?;
        let needs_localnet = now.method.kind().needs_localnet(setting);
        if needs_localnet && !localnet::is_on() {
            // Found out before anything is changed.
            localnet::can_switch()?;
        }
        let mut stored = Stored { setting: setting.clone(), method: now.method.kind(), active, is_begun: true };
        self.claim(&stored)?;
        let was_open = localnet::is_on();
        let opened = if needs_localnet { self.open_localnet(setting, now.method.as_ref()) } else { Ok(()) };
        let put = opened.and_then(|()| match now.step(self, setting, active) {
            Some(PlanStep::Install { active, is_guarded }) => now.method.install(setting, active, is_guarded),
            Some(_) => now.method.switch(setting, active),
            None => Ok(()),
        });
        if let Err(fault) = put {
            // What was there before is there still; so is what is remembered of it.
            match &now.before {
                Some(before) => self.store(before)?,
                None => self.state.remove(KIND, setting.name.as_str())?,
            }
            if needs_localnet {
                // The first fault is the one to tell.
                let closed = if was_open { Ok(()) } else { self.close_localnet(&setting.name) };
                let _ = closed.and_then(|()| now.take_guard_back(setting));
            }
            return Err(fault);
        }
        stored.is_begun = false;
        self.store(&stored)?;
        let went = format!(
            "{}: new connections to {} go to {active} ({})",
            setting.name,
            setting.listen,
            nft::places(setting.instance(active))
        );
        let mut done = FlipReport::line(now.reason);
        done.add(went.clone());
        done.lines.extend(setting.remarks(now.method.kind()));
        if !needs_localnet {
            // What was needed before and is not any more is closed while its guard stands.
            let closed = self.close_localnet(&setting.name).and_then(|()| now.method.unguard(setting));
            closed.map_err(|fault| left_guard(setting, &went, fault))?;
            done.lines.extend(self.exposed(&setting.name).filter(|_| now.has_guard));
        }
        Ok(done)
    }

    /// What there is of a flip, before it is set up.
    fn look(&self, init: &Init) -> Result<CurrentFlip, KernelError> {
        let setting = &init.setting;
        self.refuse_hidden(setting)?;
        let before = self.stored(&setting.name)?;
        let (method, reason) = self.method_for(init, before.as_ref())?;
        let about = before.as_ref().map_or(setting, |before| &before.setting);
        let observed = method.observe(about)?;
        let has_guard = method.has_guard(&setting.name)?;
        Ok(CurrentFlip { method, reason, before, observed, has_guard })
    }

    /// Refuses an address that another flip has: one of the two would hide the other.
    fn refuse_hidden(&self, setting: &Setting) -> Result<(), KernelError> {
        for name in self.state.names(KIND)?.into_iter().filter(|name| *name != setting.name.as_str()) {
            // What cannot be read is shown by `status`.
            let Ok(Some(other)) = self.state.read::<Stored>(KIND, &name) else { continue };
            if other.setting.hides(setting) {
                let listen = other.setting.listen;
                return Err(KernelError::new(
                    format!("flip {}", setting.name),
                    format!("the flip {name} already uses {listen}, and one would hide the other"),
                    format!(
                        "remove it first with `baton flip remove --name {name}`, or use another address than {listen}"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Remembers a flip, unless another one is about the same address.
    fn claim(&self, stored: &Stored) -> Result<(), KernelError> {
        let lock = self.state.lock(KIND, COMMON_LOCK)?;
        let claimed = self.refuse_hidden(&stored.setting).and_then(|()| self.store(stored));
        lock.remove();
        claimed
    }

    fn method_for(&self, init: &Init, before: Option<&Stored>) -> Result<(Box<dyn FlipMethod>, String), KernelError> {
        let name = &init.setting.name;
        match (before, init.method) {
            (Some(before), Some(asked)) if before.method != asked => Err(KernelError::new(
                format!("flip {name}"),
                format!("it is set up with method {}", before.method),
                format!(
                    "remove it first with `baton flip remove --name {name}`: two methods at once would hide each other"
                ),
            )),
            (Some(Stored { method, .. }), _) => Ok((by_kind(*method), format!("method {method}, as set up"))),
            (None, asked) => self.alone(|| match asked {
                Some(kind) => {
                    let method = by_kind(kind);
                    let checked = method.check(&init.setting);
                    checked.map(|()| (method, format!("method {kind}, as requested")))
                }
                None => choose(&init.setting),
            })?,
        }
    }

    /// Sends new connections to one of the two.
    ///
    /// # Errors
    /// When the instance does not answer, or the kernel refuses; then nothing was changed.
    pub fn switch(&self, switch: &Switch) -> Result<FlipReport, KernelError> {
        let _lock = self.lock(&switch.name)?;
        let stored = self.known(&switch.name)?;
        self.switch_locked(stored, switch)
    }

    fn switch_locked(&self, stored: Stored, switch: &Switch) -> Result<FlipReport, KernelError> {
        let (method, setting, to) = (by_kind(stored.method), &stored.setting, switch.to);
        let observed = method.observe(setting)?;
        if observed == Observed::Active(to) && method.kind().translates() {
            return Ok(FlipReport::line(format!("{to} is active already")));
        }
        if !switch.force {
            switch.check.ask(setting, to).map_err(|why| not_answering(setting, to, why))?;
        }
        let mut done = FlipReport::default();
        match observed {
            Observed::Active(_) => method.switch(setting, to)?,
            Observed::Absent | Observed::Halfway(_) | Observed::Broken(_) => {
                let why = match observed {
                    Observed::Broken(why) => why,
                    Observed::Halfway(_) => "a change was interrupted".into(),
                    Observed::Absent | Observed::Active(_) => "it was missing in the kernel".into(),
                };
                let is_guarded = method.kind().needs_localnet(setting);
                if is_guarded {
                    self.open_localnet(setting, method.as_ref())?;
                }
                method.install(setting, to, is_guarded)?;
                done.add(format!("{}: set up again, because {why}", setting.name));
            }
        }
        let listen = setting.listen;
        done.add(format!(
            "{}: new connections to {listen} go to {to} ({})",
            setting.name,
            nft::places(setting.instance(to))
        ));
        self.store(&Stored { active: to, is_begun: false, ..stored })?;
        Ok(done)
    }
}

/// What there is of a flip, before it is set up.
struct CurrentFlip {
    method: Box<dyn FlipMethod>,
    /// Why it is that method.
    reason: String,
    /// What is remembered.
    before: Option<Stored>,
    /// What the kernel has of that.
    observed: Observed,
    /// Whether there is anything of a loopback's guard.
    has_guard: bool,
}

impl CurrentFlip {
    /// Which instance gets new connections, when all is there that is remembered.
    fn current(&self) -> Option<Colour> {
        match self.observed {
            Observed::Active(colour) => Some(colour),
            Observed::Absent | Observed::Halfway(_) | Observed::Broken(_) => None,
        }
    }

    fn is_same(&self, setting: &Setting) -> bool {
        self.before.as_ref().is_some_and(|before| before.setting == *setting)
    }

    /// Whether all is as it is to be.
    fn is_done(&self, init: &Init) -> bool {
        let is_active = self.current().is_some_and(|current| init.active.is_none_or(|active| active == current));
        let is_guard_right = match self.method.kind().needs_localnet(&init.setting) {
            true => localnet::is_on(),
            // One of the addresses before may be left.
            false => !self.has_guard,
        };
        self.is_same(&init.setting) && is_active && is_guard_right
    }

    fn already(&self, setting: &Setting) -> String {
        let current = self.current().map_or("none", Colour::word);
        format!("{} is set up already, and {current} is active", setting.name)
    }

    /// Which instance is to be active, if one is preferred.
    fn wished(&self, init: &Init) -> Option<Colour> {
        init.active.or(self.current()).or(self.before.as_ref().map(|before| before.active))
    }

    /// What is to be done so that this instance is active; `None`: it is.
    fn step(&self, flips: &Flips, setting: &Setting, active: Colour) -> Option<PlanStep> {
        match self.current() {
            Some(current) if self.is_same(setting) => (current != active).then_some(PlanStep::Switch(active)),
            Some(_) | None => {
                let kind = self.method.kind();
                // As long as the loopback is open, its guard stands.
                let is_guarded = kind.needs_localnet(setting) || (kind.translates() && flips.has_opened_localnet());
                Some(PlanStep::Install { active, is_guarded })
            }
        }
    }

    /// Removes a guard that was made for nothing.
    fn take_guard_back(&self, setting: &Setting) -> Result<(), KernelError> {
        let kind = self.method.kind();
        match &self.before {
            _ if self.observed == Observed::Absent => self.method.remove(&setting.name),
            Some(before) if kind.needs_localnet(&before.setting) => Ok(()),
            Some(_) | None => self.method.unguard(setting),
        }
    }
}

/// The instance that is wished for, if it answers; without a wish, one that does.
fn answering(init: &Init, wished: Option<Colour>) -> Result<Colour, KernelError> {
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

/// All is done but what comes last.
fn left_guard(setting: &Setting, went: &str, fault: KernelError) -> KernelError {
    let reason = format!(
        "done, {went}; but the loopback guard of the previous addresses is left, which drops packets from other machines to \
         127.0.0.0/8: {fault}"
    );
    KernelError::new(format!("flip {}", setting.name), reason, "run the same `baton flip init` again")
}

fn not_answering(setting: &Setting, colour: Colour, why: String) -> KernelError {
    let remedy = format!("nothing was changed; start it, or send connections to {colour} anyway with --force");
    KernelError::new(format!("flip {}", setting.name), why, remedy)
}
