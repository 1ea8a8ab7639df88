//! The rights that `mode direct` takes, and what is said where they are missing.

use baton_direct::{Director, Fault};
use baton_kernel::process::capabilities::{self, Capability};
use baton_model::Model;
use baton_proxy::Refused;

use super::{Work, lower, refuse, work};

/// Rights by what takes them.
const NEEDED: [(Capability, &str); 2] = [
    (Capability::CAP_NET_ADMIN, "to change services of the kernel"),
    (Capability::CAP_NET_RAW, "to ask servers for the virtual address and to announce it"),
];

/// What this process lacks for a model, a sentence each; empty is well.
pub fn missing_rights(model: &Model) -> Vec<String> {
    if !model.has_direct() {
        return Vec::new();
    }
    let missing = capabilities::missing(&NEEDED.map(|(right, _)| right)).unwrap_or_default();
    let words = NEEDED.iter().filter(|(right, _)| missing.contains(right));
    words.map(|(right, why)| format!("this process has no {right}, {why}: {REMEDY}")).collect()
}

/// What helps where a right is missing.
const REMEDY: &str = "start it as root ('user' gives up the rest), or give it the right (AmbientCapabilities= of systemd, see the package's direct.conf)";

/// A fault with what this process lacks, if that may be why.
pub fn explain(fault: &Fault) -> String {
    let missing = capabilities::missing(&[Capability::CAP_NET_ADMIN]).unwrap_or_default();
    match missing.is_empty() {
        true => fault.to_string(),
        false => format!("{fault}; this process has no CAP_NET_ADMIN: {REMEDY}"),
    }
}

/// The same, unless what is lacking `is_unseen` from here.
pub fn explain_unless(is_unseen: bool, fault: &Fault) -> String {
    if is_unseen { fault.to_string() } else { explain(fault) }
}

/// That nothing can be opened in a jail.
pub fn jailed() -> Fault {
    Fault::new(
        "the kernel's records and settings",
        "they are out of reach in this process, which began without mode direct and has another root since ('chroot')",
        "let a new process take over (baton -sf PID)",
    )
}

/// Whether this machine can do what a model asks for, for `-c`. What only a right is missing for is a warning, since who checks a
/// file need not be who serves by it.
///
/// # Errors
/// What the engine cannot do.
pub fn judge(model: &Model) -> Result<Vec<String>, Vec<Refused>> {
    if !model.has_direct() {
        return Ok(Vec::new());
    }
    let lacking = missing_rights(model);
    let Work { services, settings, .. } = work(model, &baton_proxy::Registry::new(1, std::time::Instant::now()));
    match Director::open(lower::engine(model), &settings) {
        Ok(mut director) => {
            let refused: Vec<Refused> =
                director.judge(&services).iter().map(|no| refuse(model, &no.what, &no.why)).collect();
            let here = director.look(&settings, &services).unwrap_or_default();
            let here = here.iter().map(|no| format!("mode direct cannot begin here: {}: {}", no.what, no.why));
            if refused.is_empty() { Ok(lacking.into_iter().chain(here).collect()) } else { Err(refused) }
        }
        // Rights are the reason, or the machine is not the one that will serve.
        Err(fault) => {
            let mut warnings = lacking;
            warnings.push(format!("mode direct cannot begin here: {fault}"));
            Ok(warnings)
        }
    }
}
