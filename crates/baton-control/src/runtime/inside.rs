//! Commands about what a process is made of, in the headings of HAProxy: `show activity|events|fd|libs|pools|profiling|threads`. What is not
//! counted here is left out.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use baton_kernel::process::{procfs, usage};
use baton_proxy::{Counter, Generation};

use super::{Begun, Pieces};
use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;

/// Descriptors in one piece.
const DESCRIPTORS: usize = 256;

/// `show pools`: memory has none here; what it takes in RAM is all that is known.
pub(super) fn pools(_: &Control, _: &Call) -> CommandResponse {
    let bytes = usage::resident_bytes().unwrap_or_default();
    CommandResponse::Data(format!(
        "Dumping pools usage. Use SIGQUIT to flush them.\n\
         Total: 0 pools, {bytes} bytes allocated, {bytes} used (~0 by thread caches).\n"
    ))
}

/// `show activity`: figures of all threads, and of each.
pub(super) fn activity(control: &Control, _: &Call) -> CommandResponse {
    let cores = control.line.registry().cores();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut out = format!("thread_id: 1 (1..{cores})\ndate_now: {}.{:06}\n", now.as_secs(), now.subsec_micros());
    let mut line = |name: &str, of: &dyn Fn(usize) -> u64| {
        let each: Vec<u64> = (0..cores).map(of).collect();
        let _ = write!(out, "{name}: {} [ ", each.iter().sum::<u64>());
        for count in each {
            let _ = write!(out, "{count} ");
        }
        out.push_str("]\n");
    };
    let Some(generation) = control.line.generation() else { return CommandResponse::Data(out) };
    let open = control.workers.open_by_core();
    line("stream_calls", &|core| counted(generation, core, Counter::Requests));
    line("accepted", &|core| counted(generation, core, Counter::Connections));
    line("conn_open", &|core| open.get(core).copied().unwrap_or_default() as u64);
    CommandResponse::Data(out)
}

fn counted(generation: &Generation, core: usize, counter: Counter) -> u64 {
    generation.frontends.iter().map(|plan| plan.state.counters.of_core(core, counter)).sum()
}

/// `show threads`.
pub(super) fn threads(control: &Control, _: &Call) -> CommandResponse {
    let mut out = String::new();
    for (number, open) in control.workers.open_by_core().into_iter().enumerate() {
        let number = number + 1;
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  Thread {number:<2}: name=baton/{number} conn={open}");
    }
    CommandResponse::Data(out)
}

/// `show libs`: the program and the libraries that are loaded.
pub(super) fn libraries(_: &Control, _: &Call) -> CommandResponse {
    let Ok(maps) = procfs::read("self/maps") else {
        return CommandResponse::error("/proc/self/maps cannot be read.");
    };
    CommandResponse::Data(library_lines(&maps))
}

/// One line for each file of which a part is mapped, over all of its parts.
fn library_lines(maps: &str) -> String {
    let mut files: Vec<(&str, u64, u64)> = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let Some((Ok(from), Ok(to))) =
            range.map(|(from, to)| (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16)))
        else {
            continue;
        };
        let Some(path) = words.nth(4).filter(|path| path.starts_with('/')) else { continue };
        match files.iter_mut().find(|(known, ..)| *known == path) {
            Some((_, first, last)) => (*first, *last) = ((*first).min(from), (*last).max(to)),
            None => files.push((path, from, to)),
        }
    }
    let line = |(path, from, to): (&str, u64, u64)| {
        format!("{from:#018x}-{:#018x} ({:#09x}) {path}\n", to.saturating_sub(1), to - from)
    };
    files.into_iter().map(line).collect()
}

/// `show profiling [all|status|tasks|memory|byaddr|<lines>]`: there is none.
pub(super) fn profiling(_: &Control, call: &Call) -> CommandResponse {
    let is_known = |word: &String| {
        matches!(word.as_str(), "all" | "status" | "tasks" | "memory" | "byaddr") || word.parse::<u32>().is_ok()
    };
    if !call.args().iter().all(is_known) {
        let text = "Expects either 'all', 'status', 'tasks', 'memory', 'byaddr' or a max number of output lines.";
        return CommandResponse::error(text);
    }
    let part = call.args().iter().rev().find(|word| matches!(word.as_str(), "all" | "status" | "tasks" | "memory"));
    let part = part.map_or("all", String::as_str);
    let mut out = String::new();
    if matches!(part, "all" | "status") {
        out.push_str(
            "Per-task CPU profiling              : off           # not available\n\
             Memory usage profiling              : off           # not available\n",
        );
    }
    if matches!(part, "all" | "tasks") {
        out.push_str(
            "Tasks activity:\n  function                      calls   cpu_tot   cpu_avg   lat_tot   lat_avg\n",
        );
    }
    CommandResponse::Data(out)
}

/// `set profiling tasks|memory …`.
pub(super) fn set_profiling(_: &Control, call: &Call) -> CommandResponse {
    CommandResponse::error(match call.arg(0) {
        "tasks" if !matches!(call.arg(1), "on" | "off" | "auto") => "Expects 'on', 'auto', or 'off'.",
        "tasks" => "Task profiling not compiled in.",
        "memory" => "Memory profiling not compiled in.",
        _ => "Expects either 'tasks' or 'memory'.",
    })
}

/// `show fd [<number>]`: each open descriptor, and what it leads to.
pub(super) fn descriptors(_: &Control, call: &Call) -> Begun {
    let wanted: Option<i32> = match call.arg(0) {
        "" => None,
        // As HAProxy: nothing of a number that is none.
        word => Some(word.parse().unwrap_or(-1)),
    };
    let mut numbers =
        usage::descriptors().map_err(|error| CommandResponse::error(format!("/proc/self/fd: {error}")))?;
    numbers.sort_unstable();
    numbers.retain(|number| wanted.is_none_or(|wanted| wanted == *number));
    Ok(Box::new(DescriptorListing { numbers, at: 0 }))
}

struct DescriptorListing {
    numbers: Vec<i32>,
    at: usize,
}

impl Pieces for DescriptorListing {
    fn next(&mut self, _: &Control) -> Option<String> {
        let end = self.numbers.len().min(self.at + DESCRIPTORS);
        let numbers = self.numbers.get(self.at..end).filter(|numbers| !numbers.is_empty())?;
        self.at = end;
        let mut out = String::new();
        for number in numbers {
            // One that was closed meanwhile is left out.
            if let Some(target) = usage::descriptor_target(*number) {
                let _ = writeln!(out, "{number:7} : {}", crate::printable::line(&target));
            }
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::library_lines;

    #[test]
    fn a_library_is_one_line_over_all_its_parts() {
        let maps = "1000-2000 r--p 00000000 08:01 7  /lib/a.so\n2000-3000 r-xp 00001000 08:01 7  /lib/a.so\n\
                    9000-a000 rw-p 00000000 00:00 0\na000-b000 r-xp 00000000 00:00 0  [vdso]\n5000-6000 r-xp 0 08:01 8 /bin/b\n";
        assert_eq!(
            library_lines(maps),
            "0x0000000000001000-0x0000000000002fff (0x0002000) /lib/a.so\n\
             0x0000000000005000-0x0000000000005fff (0x0001000) /bin/b\n"
        );
    }
}
