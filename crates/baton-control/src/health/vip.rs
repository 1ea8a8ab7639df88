//! Checks of the virtual address on a server of `mode direct`: it gets clients' packets as they are, and without the address it
//! would drop them, however well it answers at its own.

use std::net::IpAddr;
use std::time::Duration;

pub(super) use baton_direct::probe::Asked;
use baton_direct::probe::{Found, Missing, With};
use baton_model::{Address, Forwarding, Model, Place, Proxy, Server};

use super::plan::Plan;
use super::{Report, Status};
use crate::direct::{Prober, lower};

/// Virtual addresses that are asked for at one check; a section with more has them all on the same servers.
const ASKED_MAX: usize = 8;
/// The longest that one question takes, and the least that it has where checks come quickly: it is a busy machine's clock too.
const WITHIN_MAX: Duration = Duration::from_secs(1);
const WITHIN_MIN: Duration = Duration::from_millis(300);

/// What to ask a server: each virtual address once, by a port of a service.
pub(super) fn asked(model: &Model, proxy: &Proxy, server: &Server) -> Vec<Asked> {
    if !proxy.direct.as_ref().is_some_and(|direct| direct.vip_check) {
        return Vec::new();
    }
    let own = match server.address.fixed() {
        Some(Address::Inet(address)) if server.forwarding == Forwarding::Direct => address.ip(),
        _ => return Vec::new(),
    };
    let mut asked: Vec<Asked> = Vec::new();
    for place in lower::places_of(model, proxy) {
        let (vip, with): (IpAddr, With) = match place {
            Place::Tcp(address) if address.port() > 0 => (address.ip(), With::Tcp(address.port())),
            Place::Tcp(address) | Place::Udp(address) => (address.ip(), With::Echo),
            Place::Mark { .. } => continue,
        };
        if vip.is_ipv4() == own.is_ipv4() && !asked.iter().any(|known| known.vip == vip) {
            asked.push(Asked { vip, server: own, with });
        }
        if asked.len() == ASKED_MAX {
            break;
        }
    }
    asked
}

/// Asks for all of them; the report of the first one that is missing.
///
/// # Errors
/// Why it could not be asked, for which the server is not to blame.
pub(super) async fn ask(prober: &Prober, plan: &Plan) -> Result<Option<Report>, String> {
    let within = plan.connect.clamp(WITHIN_MIN, WITHIN_MAX);
    for asked in &plan.vips {
        match prober.ask(*asked, within).await {
            Some(Ok(found)) if found.is_set_up() => {}
            Some(Ok(found)) => {
                let why = match found {
                    Found::Missing(Missing::Silent) => "nobody answers for it there".to_owned(),
                    found => found.to_string(),
                };
                let text = format!("virtual address {} is not set up on the server: {why}", asked.vip);
                return Ok(Some(Report::new(Status::L4Connection).info(text)));
            }
            Some(Err(fault)) => return Err(format!("virtual addresses cannot be asked for: {fault}")),
            // The threads are gone with a configuration that is gone.
            None => return Ok(None),
        }
    }
    Ok(None)
}
