//! Takes the steps, one after the other. What is remembered is written before the machine is changed.

use baton_kernel::KernelError;
use baton_kernel::route::Routing;
use baton_kernel::state::State;

use super::plan::{FilterRules, OWNER, RealServerStep, TUNNEL};
use super::record::{ActiveVip, ArpSuppression, ChangedSysctl, RealServerRecord, Rules};
use super::{RUN, filter, unit};
use crate::vip::{Vip, Vips};

pub(super) fn take(
    state: &State,
    record: &RealServerRecord,
    wish: Vec<ActiveVip>,
    steps: &[RealServerStep],
) -> Result<(), KernelError> {
    let mut record = record.clone();
    if steps.is_empty() && record.up == wish {
        return Ok(());
    }
    let mut routing = Routing::open()?;
    let mut vips = Vips::open_in(RUN, OWNER)?;
    let mut present = vips.ours()?;
    // After a crash, what comes and what goes are both known to be up.
    let coming = wish.iter().filter(|up| record.up.iter().all(|known| known.vip != up.vip));
    record.up = record.up.iter().chain(coming).cloned().collect();
    record.write(state)?;
    for step in steps {
        match step {
            RealServerStep::Set { setting, before, value } => {
                if record.changed.iter().all(|changed| changed.setting != *setting) {
                    let (setting, before) = (setting.clone(), before.clone());
                    record.changed.push(ChangedSysctl { setting, before, set: (*value).to_owned() });
                    record.write(state)?;
                }
                setting.write(value)?;
            }
            RealServerStep::Filter(FilterRules(rules)) => {
                // Between the two, nobody knows which rules are there.
                record.filter = Some(Rules::default());
                record.write(state)?;
                filter::install(rules)?;
                record.filter = Some(rules.clone());
                record.write(state)?;
            }
            RealServerStep::RemoveFilter => {
                filter::remove()?;
                record.filter = None;
                record.write(state)?;
            }
            RealServerStep::TunnelUp => {
                record.has_tunnel = true;
                record.write(state)?;
                // The kernel loads the module for the question, and that makes the interface.
                routing.add_link(TUNNEL, "ipip")?;
                let tunnel = routing.link(TUNNEL)?;
                routing.set_up(tunnel.index, true)?;
            }
            RealServerStep::TunnelDown => {
                if let Some(tunnel) = routing.find_link(TUNNEL)? {
                    routing.set_up(tunnel.index, false)?;
                }
                record.has_tunnel = false;
                record.write(state)?;
            }
            RealServerStep::Add(vip) => {
                present.push(vip.clone());
                reconcile(&mut vips, &present)?;
            }
            RealServerStep::Remove(vip) => {
                present.retain(|known| known != vip);
                reconcile(&mut vips, &present)?;
            }
            RealServerStep::Restore { setting, value } => {
                setting.write(value)?;
                record.changed.retain(|changed| changed.setting != *setting);
                record.write(state)?;
            }
            RealServerStep::Forget(setting) => {
                record.changed.retain(|changed| changed.setting != *setting);
                record.write(state)?;
            }
            RealServerStep::WriteUnit(vip) => {
                if let Some(up) = wish.iter().find(|up| up.vip == *vip) {
                    unit::write(up)?;
                }
            }
            RealServerStep::RemoveUnit(vip) => unit::remove(*vip)?,
        }
    }
    // After a crash there may have been nothing to remove: an address that was recorded and not yet added is forgotten.
    reconcile(&mut vips, &present)?;
    if !wish.iter().any(|up| matches!(up.quiet, ArpSuppression::Filter(_))) {
        record.filter = None;
    }
    record.up = wish;
    record.write(state)
}

fn reconcile(vips: &mut Vips, wanted: &[Vip]) -> Result<(), KernelError> {
    match vips.reconcile(wanted)?.faults.into_iter().next() {
        Some(fault) => Err(fault),
        None => Ok(()),
    }
}
