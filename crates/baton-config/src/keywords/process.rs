//! Keywords of `global` about the process: its limits, its processors, its rights.

use std::collections::BTreeSet;

use baton_model::Capability;
use baton_rules::suggestion;

use crate::lower::{Call, GlobalDraft, Prefix};

/// The highest number of a processor, as in HAProxy.
const CPU_MAX: u32 = 1023;
/// Most threads, as in HAProxy.
const THREADS_MAX: u32 = 64;

pub(super) fn strict_limits(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if call.at_most(0) {
        global.model.process.strict_limits = call.prefix != Prefix::No;
    }
}

pub(super) fn fd_hard_limit(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let given = global.model.process.fd_hard_limit.is_some();
    if let Some(value) = call.number(0, i64::from(i32::MAX))
        && !super::global::again(call, given)
    {
        global.model.process.fd_hard_limit = u64::try_from(value).ok().filter(|value| *value > 0);
    }
}

pub(super) fn set_dumpable(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if call.at_most(0) {
        global.model.process.dumpable = call.prefix == Prefix::None;
    }
}

pub(super) fn insecure_setuid_wanted(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    global.model.process.may_gain_rights |= call.at_most(0);
}

/// A keyword of HAProxy 2.9: names with commas between them.
pub(super) fn setcap(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let Some(names) = call.only("a list of capabilities as an argument") else { return };
    for name in names.split(',') {
        match Capability::ALL.into_iter().find(|known| known.name() == name) {
            Some(known) => {
                global.model.process.capabilities.insert(known);
            }
            None => {
                let known = Capability::ALL.map(Capability::name).join(", ");
                let message = format!("'setcap' : unknown capability '{name}' (known: {known})");
                let hint = suggestion(name, Capability::ALL.map(Capability::name));
                call.error_with(call.first, "bad-value", message, hint);
            }
        }
    }
}

/// `[auto:]GROUP[/THREADS] CPUS...`: there is one group of threads, and what is said of others is ignored.
pub(super) fn cpu_map(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if call.args() < 2 {
        return call.error(
            call.first,
            "missing-argument",
            format!(
                "'cpu-map' expects threads ('all', 'odd', 'even', a number from 1 to {THREADS_MAX} or a range, after '1/'), \
                 followed by a list of CPU ranges with numbers from 0 to {CPU_MAX}."
            ),
        );
    }
    let (is_auto, place) = match call.arg(0).strip_prefix("auto:") {
        Some(place) => (true, place),
        None => (false, call.arg(0)),
    };
    let (group, threads) = place.split_once('/').unwrap_or((place, "all"));
    let sets = numbers(group).and_then(|group| Ok((group, numbers(threads)?)));
    let (groups, threads) = match sets {
        Ok(sets) => sets,
        Err(reason) => return call.error(call.first, "bad-value", format!("cpu-map : {reason}")),
    };
    let mut cpus = BTreeSet::new();
    for index in 1..call.args() {
        match cpu_set(call.arg(index)) {
            Ok(range) => cpus.extend(range),
            Err(reason) => return call.error(call.first + index, "bad-value", format!("cpu-map : {reason}")),
        }
    }
    // One processor for several threads is against the manual; HAProxy takes it and binds the first thread.
    if is_auto && cpus.len() > 1 && cpus.len() != threads.len() {
        let message = "cpu-map : PROC/THREAD range and CPU sets must have the same size to be automatically bound";
        return call.error(call.first, "bad-value", message.into());
    }
    if !groups.contains(&1) {
        return call.notice("no-effect", "'cpu-map' of a thread group other than 1 is ignored".into());
    }
    let map = &mut global.model.process.cpu_map;
    if is_auto {
        map.extend(threads.into_iter().zip(cpus.into_iter().map(|cpu| BTreeSet::from([cpu]))));
    } else {
        map.extend(threads.into_iter().map(|thread| (thread, cpus.clone())));
    }
}

/// `all`, `odd`, `even`, `3`, `1-4`, `2-`: threads, or groups of them.
fn numbers(text: &str) -> Result<BTreeSet<u32>, String> {
    let all = 1..=THREADS_MAX;
    match text {
        "all" => return Ok(all.collect()),
        "odd" => return Ok(all.step_by(2).collect()),
        "even" => return Ok(all.skip(1).step_by(2).collect()),
        _ => {}
    }
    let invalid = |_| format!("'{text}' is not a valid number/range.");
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let low: u32 = low.parse().map_err(invalid)?;
    let high = if high.is_empty() { THREADS_MAX } else { high.parse().map_err(invalid)? };
    if !all.contains(&low) || !all.contains(&high) {
        return Err(format!("'{text}' is not a valid number/range. It supports numbers from 1 to {THREADS_MAX}."));
    }
    Ok((low.min(high)..=low.max(high)).collect())
}

/// `3`, `0-3`, `2-`, and several with commas between them.
fn cpu_set(text: &str) -> Result<BTreeSet<u32>, String> {
    let mut cpus = BTreeSet::new();
    for part in text.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u32>().map_err(|_| format!("'{text}' is not a CPU range."));
        let low = number(low).map_err(|_| format!("'{part}' is not a CPU range."))?;
        let high = if high.is_empty() { CPU_MAX } else { number(high)? };
        if low.max(high) > CPU_MAX {
            return Err(format!("supports CPU numbers from 0 to {CPU_MAX}."));
        }
        cpus.extend(low.min(high)..=low.max(high));
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_threads() {
        let set = |text| numbers(text).map(|set| set.into_iter().collect::<Vec<_>>());
        assert_eq!(set("3"), Ok(vec![3]));
        assert_eq!(set("62-"), Ok(vec![62, 63, 64]));
        assert_eq!(set("4-2"), Ok(vec![2, 3, 4]));
        assert_eq!(set("odd").map(|set| (set[0], set[31])), Ok((1, 63)));
        assert_eq!(set("even").map(|set| (set[0], set[31])), Ok((2, 64)));
        for text in ["", "x", "0", "65", "1-65", "-1", "1-2-3", "1,2"] {
            assert!(set(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sets_of_cpus() {
        let set = |text| cpu_set(text).map(|set| set.into_iter().collect::<Vec<_>>());
        assert_eq!(set("3"), Ok(vec![3]));
        assert_eq!(set("2-0"), Ok(vec![0, 1, 2]));
        assert_eq!(set("0,4-5"), Ok(vec![0, 4, 5]));
        assert_eq!(set("1022-"), Ok(vec![1022, 1023]));
        for text in ["", "x", "-1", "1-2-3", "odd", "1,", "1024"] {
            assert!(set(text).is_err(), "{text}");
        }
    }
}
