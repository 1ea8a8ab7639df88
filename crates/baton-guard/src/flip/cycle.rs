//! The whole cycle: the idle instance is reloaded, awaited, made active, and the other one left to drain.

use std::thread;
use std::time::{Duration, Instant};

use super::command::{self, Ended};
use super::probe::variables;
use super::status::open;
use super::{Check, Colour, FlipMethodKind, FlipReport, Flips, Name, Observed, Setting, Switch, by_kind};
use crate::KernelError;
use crate::hold::Targets;
use crate::hold::settle::PreviousListeners;

/// Time from one count of connections to the next, while one waits for them to end.
const PAUSE: Duration = Duration::from_millis(100);

/// What [`Flips::run`] is to do.
#[derive(Clone, Debug)]
pub struct FlipCycle {
    /// Which flip.
    pub name: Name,
    /// How blue is reloaded or started: words for `sh`. The environment has `BATON_FLIP_COLOUR` and `BATON_FLIP_ADDRESS`.
    pub reload_blue: String,
    /// How green is.
    pub reload_green: String,
    /// Timeout of a reload; after it the command is killed, with its children.
    pub limit: Duration,
    /// How to see whether the reloaded one serves.
    pub check: Check,
    /// How long it may take until it does.
    pub wait: Duration,
    /// How long to wait for the connections of the other one to end.
    pub drain: Duration,
}

impl FlipCycle {
    fn reload(&self, colour: Colour) -> &str {
        match colour {
            Colour::Blue => &self.reload_blue,
            Colour::Green => &self.reload_green,
        }
    }
}

impl Flips {
    /// What [`Flips::run`] would do.
    ///
    /// # Errors
    /// Without such a flip, or when the kernel cannot say which instance is active.
    pub fn plan_run(&self, cycle: &FlipCycle) -> Result<FlipReport, KernelError> {
        let stored = self.known(&cycle.name)?;
        let method = by_kind(stored.method);
        let idle = match method.observe(&stored.setting)? {
            Observed::Active(active) | Observed::Halfway(active) => active.other(),
            Observed::Absent | Observed::Broken(_) => stored.active.other(),
        };
        let setting = &stored.setting;
        let mut done = FlipReport::line(format!("# reload {idle}, timeout {} s", cycle.limit.as_secs_f64()));
        done.add(command::typed(cycle.reload(idle), &variables(idle, &setting.doors(idle))));
        done.add(format!("# wait until its old listening sockets are closed, timeout {} s", cycle.wait.as_secs_f64()));
        done.add(format!("{}, {} s at most", cycle.check.plan(setting, idle), cycle.wait.as_secs_f64()));
        done.lines.extend(self.plan_step(setting, method.as_ref(), idle)?);
        done.add(format!(
            "# wait until the connections of {} end, timeout {} s",
            idle.other(),
            cycle.drain.as_secs_f64()
        ));
        Ok(done)
    }

    /// Reloads the idle instance, waits until it answers, sends new connections to it, and waits for those of the other one. What
    /// it does is told line by line.
    ///
    /// # Errors
    /// When the reload fails, or the instance does not answer in time, or the kernel refuses; then new connections go where they
    /// went.
    pub fn run(&self, cycle: &FlipCycle, tell: &mut dyn FnMut(&str)) -> Result<(), KernelError> {
        let _lock = self.lock(&cycle.name)?;
        let stored = self.known(&cycle.name)?;
        let (kind, setting) = (stored.method, stored.setting.clone());
        let idle = match by_kind(stored.method).observe(&setting)? {
            Observed::Active(active) | Observed::Halfway(active) => active.other(),
            Observed::Absent | Observed::Broken(_) => stored.active.other(),
        };
        if let Some(left @ 1..) = open(stored.method, &setting, idle) {
            tell(&format!("{idle} still has {left} open connections; whether they survive depends on its reload"));
        }
        // What cannot be seen is not waited for.
        let before = Targets::new(setting.instance(idle).to_vec())
            .ok()
            .and_then(|targets| PreviousListeners::look(&targets).ok());
        reload(&setting, idle, cycle)?;
        tell(&format!("{idle} is reloaded"));
        // As long as its old process listens beside the new one, it gets connections, and resets them when it goes.
        if let Some(settled) =
            before.and_then(|before| before.replaced(cycle.wait).ok()).filter(|settled| settled.left > 0)
        {
            let why = format!("{} of its sockets are shared with another process than the reloaded one", settled.left);
            return Err(not_flipped(&setting, idle, why));
        }
        cycle.check.wait(&setting, idle, cycle.wait).map_err(|why| not_flipped(&setting, idle, why))?;
        let switch = Switch { name: cycle.name.clone(), to: idle, check: cycle.check.clone(), force: true };
        for line in self.switch_locked(stored, &switch)?.lines {
            tell(&line);
        }
        tell(&drained(kind, &setting, idle.other(), cycle.drain));
        Ok(())
    }
}

fn reload(setting: &Setting, colour: Colour, cycle: &FlipCycle) -> Result<(), KernelError> {
    let words = cycle.reload(colour);
    let ended = command::run(words, &variables(colour, &setting.doors(colour)), cycle.limit);
    let why = match ended.map_err(|error| KernelError::new("sh", error.to_string(), ""))? {
        Ended::By(status) if status.success() => return Ok(()),
        Ended::By(status) => format!("the reload of {colour}, '{words}', ended with {status}"),
        Ended::Late => {
            let limit = cycle.limit.as_secs_f64();
            format!("the reload of {colour}, '{words}', took longer than {limit} s and was killed")
        }
    };
    Err(not_flipped(setting, colour, why))
}

/// The end of a cycle before its flip.
fn not_flipped(setting: &Setting, idle: Colour, why: String) -> KernelError {
    KernelError::new(format!("flip {}", setting.name), why, format!("new connections still go to {}", idle.other()))
}

/// Waits until nobody is connected any more, and says what came of it.
fn drained(kind: FlipMethodKind, setting: &Setting, colour: Colour, patience: Duration) -> String {
    let begin = Instant::now();
    loop {
        match open(kind, setting, colour) {
            None => {
                let taken = by_kind(kind).taken(setting, colour);
                let taken = taken.map(|taken| format!(" of {taken} since it was set up")).unwrap_or_default();
                return format!("{colour} drains; its open connections{taken} cannot be counted from here");
            }
            Some(0) => return format!("{colour} has no connections left"),
            Some(left) if begin.elapsed() >= patience => {
                return format!("{colour} keeps {left} open connections until they end");
            }
            Some(_) => thread::sleep(PAUSE),
        }
    }
}
