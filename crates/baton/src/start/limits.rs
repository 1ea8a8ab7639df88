//! How many threads, and how many open files.

use baton_control::Messages;
use baton_kernel::process::cpus;
use baton_kernel::process::limits::OpenFiles;
use baton_model::Global;

/// The most threads; HAProxy's limit too.
const THREADS_MAX: usize = 64;

/// `nbthread`, or one thread for each processor we may use.
pub(super) fn cores(global: &Global) -> usize {
    let asked = global.nbthread.map(|threads| threads as usize);
    let usable = || cpus::usable().map_or(1, |cpus| cpus.len());
    asked.unwrap_or_else(usable).clamp(1, THREADS_MAX)
}

/// `ulimit-n`, or what `maxconn` needs, or as much as the system gives.
pub(super) fn raise_descriptors(global: &Global, messages: &Messages) {
    let for_connections = global.maxconn.map(|maxconn| u64::from(maxconn) * 2 + 1024);
    let wanted = global.ulimit_n.or(for_connections);
    let hard = OpenFiles::now().map_or(1024, |limit| limit.hard);
    match OpenFiles::raise(wanted.unwrap_or(hard)) {
        Ok(limit) if wanted.is_some_and(|wanted| limit.soft < wanted) => messages.warning(&format!(
            "[haproxy.main()] Cannot raise FD limit to {}, limit is {}.",
            wanted.unwrap_or_default(),
            limit.soft
        )),
        Ok(_) => {}
        Err(error) => messages.warning(&format!("[haproxy.main()] Cannot raise FD limit: {error}")),
    }
}
