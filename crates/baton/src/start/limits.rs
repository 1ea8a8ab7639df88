//! How many threads, on which processors, and how many open files.

use baton_control::{Capacity, Messages};
use baton_kernel::process::cpus;
use baton_kernel::process::limits::OpenFiles;
use baton_model::{Global, Model};

use super::Stop;

/// The most threads; HAProxy's limit too.
const THREADS_MAX: usize = 64;

/// `nbthread`, or one thread for each processor we may use.
pub(super) fn cores(global: &Global) -> usize {
    let asked = global.nbthread.map(|threads| threads as usize);
    let usable = || cpus::usable().map_or(1, |cpus| cpus.len());
    asked.unwrap_or_else(usable).clamp(1, THREADS_MAX)
}

/// Says which threads run everywhere although `cpu-map` names processors for them.
pub(super) fn look_at_processors(global: &Global, cores: usize, messages: &Messages) {
    let Ok(usable) = cpus::usable() else { return };
    for (thread, wanted) in global.process.cpu_map.range(..=cores as u32) {
        if !wanted.iter().any(|&cpu| usable.contains(&(cpu as usize))) {
            let wanted: Vec<String> = wanted.iter().take(8).map(u32::to_string).collect();
            messages.notice(&format!(
                "cpu-map: none of the CPUs of thread {thread} ({}) is available to this process: it runs on any CPU.",
                wanted.join(", ")
            ));
        }
    }
}

/// Raises the limit of open files to what the connections need.
///
/// # Errors
/// When the system does not give it: a start that serves fewer than it was asked to serve is none, unless
/// `no strict-limits`.
pub(super) fn raise_descriptors(model: &Model, cores: usize, messages: &Messages) -> Result<(), Stop> {
    let complain = |text: String| {
        if model.global.process.strict_limits {
            return Err(Stop::from(text));
        }
        messages.warning(&text);
        Ok(())
    };
    let capacity = Capacity::now(model, cores);
    let Capacity { maxconn, descriptors, wanted, .. } = capacity;
    let limit = OpenFiles::raise(wanted).map_err(|error| format!("[haproxy.main()] Cannot raise FD limit: {error}"))?;
    // What is wanted beyond that is for idle connections, and a wish.
    let asked = model.global.ulimit_n.unwrap_or(descriptors);
    if limit.soft < asked {
        return complain(format!(
            "[haproxy.main()] Cannot raise FD limit to {asked}, limit is {}. {capacity}: raise it (`ulimit -n`, LimitNOFILE= \
             of systemd) or lower 'maxconn'.",
            limit.soft
        ));
    }
    if limit.soft < descriptors {
        return complain(format!(
            "[haproxy.main()] FD limit ({wanted}) too low for maxconn={maxconn}/maxsock={descriptors}. Please raise \
             'ulimit-n' to {descriptors} or more to avoid any trouble."
        ));
    }
    Ok(())
}
