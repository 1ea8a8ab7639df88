//! What would be done, as a shell would read it: commands that have the same outcome, and comments (`# …`) on what no command does.
//!
//! A plan is made of what is so at this moment, by the very steps that would be taken, and is refused where they would be. It looks
//! and tries, as the real thing does first; but no command that checks is run.

use super::probe::ProbeKind;
use super::{
    Colour, FlipMethod, FlipMethodKind, FlipReport, Flips, Init, KernelError, Name, Observed, PlanStep, Setting,
    Switch, answering, by_kind, localnet, not_answering,
};

/// How `net.ipv4.conf.all.route_localnet` is switched.
const LOCALNET: &str = "sysctl -qw net.ipv4.conf.all.route_localnet";

impl Flips {
    /// What [`Flips::init`] would do, with the reason for the method.
    ///
    /// # Errors
    /// As [`Flips::init`].
    pub fn plan_init(&self, init: &Init) -> Result<FlipReport, KernelError> {
        let setting = &init.setting;
        let now = self.look(init)?;
        if now.is_done(init) {
            return Ok(FlipReport::line(format!("# {}", now.already(setting))));
        }
        let wished = now.wished(init);
        let mut done = FlipReport::line(format!("# {}", now.reason));
        let active = match &init.check.how {
            _ if init.force => wished.unwrap_or(Colour::Blue),
            // Only the real thing may run it.
            ProbeKind::Command(_) => wished.unwrap_or(Colour::Blue),
            ProbeKind::Connect | ProbeKind::Path(_) | ProbeKind::Url(_) => answering(init, wished)?,
        };
        if !init.force {
            done.add(init.check.plan(setting, active));
        }
        let kind = now.method.kind();
        let needs_localnet = kind.needs_localnet(setting);
        if needs_localnet && !localnet::is_on() {
            localnet::can_switch()?;
        }
        if needs_localnet {
            done.lines.extend(opened(setting, now.method.as_ref())?);
        }
        let step = now.step(self, setting, active);
        if let Some(step) = step {
            done.lines.extend(now.method.plan(setting, step)?);
        }
        if !needs_localnet && kind.translates() && (now.has_guard || self.has_opened_localnet()) {
            let is_closed = self.has_opened_localnet() && !self.is_localnet_needed(&setting.name)?;
            if is_closed {
                done.add(format!("{LOCALNET}=0"));
            }
            // The table of nftables that is put in the place of another one has none.
            if kind != FlipMethodKind::Nft || !matches!(step, Some(PlanStep::Install { is_guarded: false, .. })) {
                done.lines.extend(now.method.plan(setting, PlanStep::Unguard)?);
            }
            if now.has_guard && !is_closed && localnet::is_on() && !self.is_localnet_needed(&setting.name)? {
                done.add(format!("# {}", localnet::warning(&setting.name)));
            }
        }
        done.lines.extend(setting.remarks(kind).into_iter().map(|remark| format!("# {remark}")));
        Ok(done)
    }

    /// What [`Flips::switch`] would do.
    ///
    /// # Errors
    /// As [`Flips::switch`].
    pub fn plan_switch(&self, switch: &Switch) -> Result<FlipReport, KernelError> {
        let stored = self.known(&switch.name)?;
        let (setting, method) = (&stored.setting, by_kind(stored.method));
        let observed = method.observe(setting)?;
        if observed == Observed::Active(switch.to) && method.kind().translates() {
            return Ok(FlipReport::line(format!("# {} is active already", switch.to)));
        }
        let mut done = FlipReport::default();
        if !switch.force {
            if !matches!(switch.check.how, ProbeKind::Command(_)) {
                switch.check.ask(setting, switch.to).map_err(|why| not_answering(setting, switch.to, why))?;
            }
            done.add(switch.check.plan(setting, switch.to));
        }
        done.lines.extend(self.plan_step(setting, method.as_ref(), switch.to)?);
        Ok(done)
    }

    /// What sends new connections to an instance, as things are.
    pub(super) fn plan_step(
        &self,
        setting: &Setting,
        method: &dyn FlipMethod,
        to: Colour,
    ) -> Result<Vec<String>, KernelError> {
        if let Observed::Active(_) = method.observe(setting)? {
            return method.plan(setting, PlanStep::Switch(to));
        }
        let is_guarded = method.kind().needs_localnet(setting);
        let mut lines = if is_guarded { opened(setting, method)? } else { Vec::new() };
        lines.extend(method.plan(setting, PlanStep::Install { active: to, is_guarded })?);
        Ok(lines)
    }

    /// What [`Flips::remove`] would do.
    ///
    /// # Errors
    /// As [`Flips::remove`].
    pub fn plan_remove(&self, name: &Name) -> Result<FlipReport, KernelError> {
        let found = self.found(name)?;
        let mut done = FlipReport::default();
        let is_closed = self.has_opened_localnet() && !self.is_localnet_needed(name)?;
        if is_closed {
            done.add(format!("{LOCALNET}=0"));
        }
        for method in &found.there {
            done.lines.extend(method.plan_removal(name)?);
        }
        if let Err(fault) = &found.stored {
            done.add(format!("# remove the unreadable file: {}", fault.place));
        }
        if found.is_guarded && !is_closed && localnet::is_on() && !self.is_localnet_needed(name)? {
            done.add(format!("# {}", localnet::warning(name)));
        }
        if done.lines.is_empty() {
            done.add(format!("# nothing of {name} exists"));
        }
        Ok(done)
    }
}

/// What opens the loopback behind its guard, as things are.
fn opened(setting: &Setting, method: &dyn FlipMethod) -> Result<Vec<String>, KernelError> {
    let mut lines = method.plan(setting, PlanStep::Guard)?;
    if !localnet::is_on() {
        lines.push(format!("{LOCALNET}=1"));
    }
    Ok(lines)
}
