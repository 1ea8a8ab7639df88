//! How many threads, and how many open files.

use baton_control::{Messages, reload};
use baton_kernel::process::cpus;
use baton_kernel::process::limits::OpenFiles;
use baton_model::{Global, Model};

/// The most threads; HAProxy's limit too.
const THREADS_MAX: usize = 64;

/// `nbthread`, or one thread for each processor we may use.
pub(super) fn cores(global: &Global) -> usize {
    let asked = global.nbthread.map(|threads| threads as usize);
    let usable = || cpus::usable().map_or(1, |cpus| cpus.len());
    asked.unwrap_or_else(usable).clamp(1, THREADS_MAX)
}

/// `ulimit-n`, or what `maxconn` needs and idle connections may use, or as much as the system gives.
pub(super) fn raise_descriptors(model: &Model, cores: usize, messages: &Messages) {
    let global = &model.global;
    let hard = OpenFiles::now().map_or(1024, |limit| limit.hard);
    let wanted = global.ulimit_n.or_else(|| reload::descriptors_wanted(model, cores)).unwrap_or(hard);
    match OpenFiles::raise(wanted) {
        Ok(limit) if global.ulimit_n.is_some_and(|wanted| limit.soft < wanted) => {
            messages.warning(&format!("[haproxy.main()] Cannot raise FD limit to {wanted}, limit is {}.", limit.soft))
        }
        Ok(limit) if global.maxconn.is_some_and(|asked| reload::shares(model, cores).maxconn < asked) => {
            messages.warning(&format!(
                "[haproxy.main()] FD limit ({}) too low for maxconn={}: {} connections are taken at once. Please raise \
                 'ulimit-n' to {wanted} or more.",
                limit.soft,
                global.maxconn.unwrap_or_default(),
                reload::shares(model, cores).maxconn
            ));
        }
        Ok(_) => {}
        Err(error) => messages.warning(&format!("[haproxy.main()] Cannot raise FD limit: {error}")),
    }
}
