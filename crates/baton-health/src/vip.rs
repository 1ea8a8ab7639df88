//! Checks of the virtual address on a server of `mode direct`: it gets clients' packets as they are, and without the address it
//! would drop them, however well it answers at its own.

use std::net::IpAddr;
use std::time::Duration;

pub(crate) use baton_direct::probe::ProbeTarget;
use baton_direct::probe::{MissingVip, ProbeMethod, ProbeResult};
use baton_model::{Address, Forwarding, Model, Place, Proxy, Server, direct_pairs};
use rustc_hash::FxHashMap;

use crate::{Prober, Report, Status};

/// Virtual addresses that are asked for at one check; a section with more has them all on the same servers.
const ASKED_MAX: usize = 8;
/// The longest that one question takes, and the least that it has where checks come quickly: it is a busy machine's clock too.
const WITHIN_MAX: Duration = Duration::from_secs(1);
const WITHIN_MIN: Duration = Duration::from_millis(300);

/// Whether servers of a backend are asked for virtual addresses.
pub(crate) fn is_checked(proxy: &Proxy) -> bool {
    proxy.direct.as_ref().is_some_and(|direct| direct.vip_check)
}

/// Virtual addresses, by the backends whose servers are asked for them.
#[derive(Debug, Default)]
pub(crate) struct VirtualAddresses<'m>(FxHashMap<&'m str, BackendVips>);

/// Virtual addresses that lead to a backend, each once, by a port of a service.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackendVips {
    v4: Vec<(IpAddr, ProbeMethod)>,
    v6: Vec<(IpAddr, ProbeMethod)>,
}

impl VirtualAddresses<'_> {
    /// Of a model. One walk, however many backends it has.
    pub fn of(model: &Model) -> VirtualAddresses<'_> {
        let mut all: FxHashMap<&str, BackendVips> = FxHashMap::default();
        for (front, back) in direct_pairs(model).filter(|(_, back)| is_checked(back)) {
            let own = all.entry(&back.name).or_default();
            front.places().iter().for_each(|bind| own.add(&bind.place));
        }
        VirtualAddresses(all)
    }

    /// Of a backend.
    pub fn of_backend(&self, proxy: &Proxy) -> BackendVips {
        self.0.get(&*proxy.name).cloned().unwrap_or_default()
    }
}

impl BackendVips {
    fn add(&mut self, place: &Place) {
        let (vip, with): (IpAddr, ProbeMethod) = match *place {
            Place::Tcp(address) if address.port() > 0 => (address.ip(), ProbeMethod::Tcp(address.port())),
            Place::Tcp(address) | Place::Udp(address) => (address.ip(), ProbeMethod::Echo),
            Place::Mark { .. } => return,
        };
        let known = if vip.is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        if known.len() < ASKED_MAX && !known.iter().any(|(address, _)| *address == vip) {
            known.push((vip, with));
        }
    }

    /// What to ask a server: it gets packets of its own family as they are under direct routing only.
    pub fn asked(&self, server: &Server) -> Vec<ProbeTarget> {
        let own = match server.address.fixed() {
            Some(Address::Inet(address)) if server.forwarding == Forwarding::Direct => address.ip(),
            _ => return Vec::new(),
        };
        let vips = if own.is_ipv4() { &self.v4 } else { &self.v6 };
        vips.iter().map(|(vip, with)| ProbeTarget { vip: *vip, server: own, with: *with }).collect()
    }
}

/// Asks for all of them, each within the time to connect; the report of the first one that is missing.
///
/// # Errors
/// Why it could not be asked, for which the server is not to blame.
pub(crate) async fn ask(prober: &Prober, vips: &[ProbeTarget], connect: Duration) -> Result<Option<Report>, String> {
    let within = connect.clamp(WITHIN_MIN, WITHIN_MAX);
    for asked in vips {
        match prober.ask(*asked, within).await {
            Some(Ok(found)) if found.is_set_up() => {}
            Some(Ok(found)) => {
                let why = match found {
                    ProbeResult::Missing(MissingVip::Silent) => "nothing responds for it there".to_owned(),
                    found => found.to_string(),
                };
                let text = format!("virtual address {} is not set up on the server: {why}", asked.vip);
                return Ok(Some(Report::new(Status::L4Connection).info(text)));
            }
            Some(Err(fault)) => return Err(format!("virtual addresses cannot be tested: {fault}")),
            // The threads are gone with a configuration that is gone.
            None => return Ok(None),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use baton_model::{Direct, DirectBind, Mode, Role, Source};

    use super::*;

    fn listen(name: &str, places: &[Place]) -> Arc<Proxy> {
        let mut proxy = Proxy::new(name, Role::Listen);
        proxy.mode = Mode::Direct;
        let bind = |place: &Place| DirectBind {
            place: *place,
            name: None,
            id: None,
            interface: None,
            source: Source::default(),
        };
        let places = places.iter().map(bind).collect();
        proxy.direct = Some(Arc::new(Direct { vip_check: true, places, ..Direct::default() }));
        Arc::new(proxy)
    }

    fn tcp(text: &str) -> Place {
        Place::Tcp(text.parse().unwrap())
    }

    /// The addresses that a server at `address` is asked for.
    fn asked(vips: &VirtualAddresses<'_>, proxy: &Proxy, address: &str) -> Vec<String> {
        let server = Server::new("s", 1, Address::Inet(address.parse().unwrap()));
        vips.of_backend(proxy).asked(&server).iter().map(|asked| format!("{} {:?}", asked.vip, asked.with)).collect()
    }

    #[test]
    fn each_address_of_a_servers_family_is_asked_for_once_and_not_too_many() {
        let mut places = vec![tcp("192.0.2.1:80"), tcp("192.0.2.1:443"), tcp("[2001:db8::1]:80"), tcp("192.0.2.2:0")];
        let (one, other) = (listen("one", &places), listen("other", &[]));
        let model = Model { proxies: vec![one.clone(), other.clone()], ..Model::default() };
        let vips = VirtualAddresses::of(&model);
        assert_eq!(asked(&vips, &one, "10.0.0.1:80"), ["192.0.2.1 Tcp(80)", "192.0.2.2 Echo"]);
        assert_eq!(asked(&vips, &one, "[fd00::1]:80"), ["2001:db8::1 Tcp(80)"]);
        assert!(asked(&vips, &other, "10.0.0.1:80").is_empty());
        places.extend((3..30).map(|last| tcp(&format!("192.0.2.{last}:80"))));
        let model = Model { proxies: vec![listen("one", &places)], ..Model::default() };
        assert_eq!(asked(&VirtualAddresses::of(&model), &one, "10.0.0.1:80").len(), ASKED_MAX);
    }

    /// A walk over all frontends for each backend takes minutes here.
    #[test]
    fn very_many_backends_cost_what_they_are() {
        let place = |number: usize| tcp(&format!("10.{}.{}.1:80", number / 250, number % 250));
        let proxies: Vec<_> = (0..20_000).map(|number| listen(&number.to_string(), &[place(number)])).collect();
        let model = Model { proxies, ..Model::default() };
        let begun = Instant::now();
        let vips = VirtualAddresses::of(&model);
        let all: usize = model.proxies.iter().map(|proxy| asked(&vips, proxy, "10.0.0.9:80").len()).sum();
        assert_eq!(all, 20_000);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}
