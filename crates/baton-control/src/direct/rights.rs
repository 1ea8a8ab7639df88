//! The rights that `mode direct` takes, and what is said where they are missing.

use baton_direct::{Director, KernelError, Service};
use baton_kernel::process::capabilities::{self, Capability};
use baton_model::Model;
use baton_proxy::Refused;

use super::{lower, refuse, work};

/// Rights by what takes them.
const NEEDED: [(Capability, &str); 2] = [
    (Capability::CAP_NET_ADMIN, "to change services of the kernel"),
    (Capability::CAP_NET_RAW, "to probe servers for the virtual address and to announce it"),
];

/// What this process lacks for a model, a sentence each; empty is well.
pub fn missing_rights(model: &Model) -> Vec<String> {
    if !model.has_direct() {
        return Vec::new();
    }
    let missing = capabilities::missing(&NEEDED.map(|(right, _)| right)).unwrap_or_default();
    let words = NEEDED.iter().filter(|(right, _)| missing.contains(right));
    words.map(|(right, why)| format!("this process lacks {right}, {why}: {REMEDY}")).collect()
}

/// What helps where a right is missing.
const REMEDY: &str = "start it as root ('user' drops the rest), or grant it (AmbientCapabilities= in systemd, see direct.conf \
    of the package)";

/// A fault with what this process lacks, if that may be why.
pub fn explain(fault: &KernelError) -> String {
    let missing = capabilities::missing(&[Capability::CAP_NET_ADMIN]).unwrap_or_default();
    match missing.is_empty() {
        true => fault.to_string(),
        false => format!("{fault}; this process lacks CAP_NET_ADMIN: {REMEDY}"),
    }
}

/// [`explain`], unless a missing right `is_unseen` from here.
pub fn explain_unless(is_unseen: bool, fault: &KernelError) -> String {
    if is_unseen { fault.to_string() } else { explain(fault) }
}

/// That nothing can be opened in a jail.
pub fn jailed() -> KernelError {
    KernelError::new(
        "the kernel's records and settings",
        "this process cannot reach them: it started without mode direct and has changed its root ('chroot')",
        "start a new process that takes over (baton -sf PID)",
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
    let work = work(model, &baton_proxy::Registry::new(1, std::time::Instant::now()));
    let (services, settings) = (work.services(), work.settings);
    match Director::open(lower::engine(model), &settings) {
        Ok(mut director) => {
            let refused: Vec<Refused> =
                director.judge(&services).iter().map(|no| refuse(model, &no.what, &no.why)).collect();
            let here = director.look(&settings, &services).unwrap_or_default();
            let here = here.iter().map(|no| format!("mode direct cannot start here: {}: {}", no.what, no.why));
            let advice = director.advise(&settings, &services).into_iter().map(|text| format!("mode direct: {text}"));
            if refused.is_empty() { Ok(lacking.into_iter().chain(here).chain(advice).collect()) } else { Err(refused) }
        }
        // Rights are the reason, or the machine is not the one that will serve.
        Err(fault) => {
            let (refused, advice) = unseen(model, &services);
            if !refused.is_empty() {
                return Err(refused);
            }
            let mut warnings = lacking;
            warnings.push(format!("mode direct cannot start here: {fault}"));
            warnings.extend(advice);
            Ok(warnings)
        }
    }
}

/// What an engine that is named cannot do of services, and what is to be known of them, where it cannot be opened.
pub(super) fn unseen(model: &Model, services: &[Service]) -> (Vec<Refused>, Vec<String>) {
    let asked = lower::engine(model);
    let (mut refused, mut advice) = (Vec::new(), Vec::new());
    for service in services {
        let (reasons, words) = baton_direct::judge(asked, service);
        refused.extend(reasons.iter().map(|why| refuse(model, &format!("service {}", service.key), why)));
        advice.extend(words.into_iter().map(|text| format!("mode direct: {text}")));
    }
    (refused, advice)
}

#[cfg(test)]
mod tests {
    use baton_config::{FixedEnvironment, Options, load};

    use super::*;

    fn unseen(lines: &str) -> (Vec<String>, Vec<String>) {
        let text = format!("listen web\n mode direct\n bind 192.0.2.1:80\n server s1 192.0.2.11\n{lines}\n");
        let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", &*text));
        let model = loaded.model.unwrap_or_else(|| panic!("refused: {text}"));
        let work = work(&model, &baton_proxy::Registry::new(1, std::time::Instant::now()));
        let (refused, advice) = super::unseen(&model, &work.services());
        (refused.into_iter().map(|no| format!("{} {}", no.source, no.reason)).collect(), advice)
    }

    #[test]
    fn what_a_named_engine_can_never_do_takes_no_engine_to_know() {
        for (lines, words) in [
            (" engine xdp\n balance leastconn", "no scheduler 'wlc'"),
            (" engine xdp\n server s2 192.0.2.12 masquerade", "cannot masquerade"),
            (" engine xdp\n server s2 192.0.2.12 tunnel", "no tunnels"),
            (" engine xdp\n server s2 192.0.2.12 maxconn 9", "no limits"),
        ] {
            let (refused, _) = unseen(lines);
            assert!(refused.len() == 1 && refused[0].contains(words), "{lines}: {refused:?}");
            let (refused, _) = unseen(&lines.replace("engine xdp", "engine auto"));
            assert_eq!(refused, [""; 0], "it may be the other engine");
            assert_eq!(unseen(&lines.replace("engine xdp", "engine ipvs")).0, [""; 0]);
        }
        let (refused, advice) = unseen(" engine xdp\n server sorry 127.0.0.1 backup");
        assert!(refused.is_empty() && advice.len() == 1, "{refused:?} {advice:?}");
        assert!(
            advice[0].contains("server 127.0.0.1:80: the engine xdp cannot send to this machine itself"),
            "{advice:?}"
        );
    }
}
