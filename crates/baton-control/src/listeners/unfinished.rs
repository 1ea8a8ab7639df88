//! Addresses that a worker before us was emptying when it died: who waits in their queues is still to be served.
//!
//! They are put back into the configuration as the texts before had them, led to the same frontends, and taken out again at
//! once as by a reload.

use std::sync::Arc;

use baton_model::{Bind, Model, Proxy, Role};

use super::place::Place;
use super::{Inherited, options};

/// The model with the addresses of `earlier` ones (the newest last) that are not its own and whose sockets we were given;
/// `None` when there is none. A frontend that is gone comes back with what it needs.
pub fn with_unfinished(model: &Model, earlier: &[Model], held: &Inherited) -> Option<Model> {
    let mut whole = model.clone();
    let mut is_changed = false;
    for before in earlier.iter().rev() {
        for proxy in before.proxies.iter().filter(|proxy| proxy.role.is_frontend() && !proxy.disabled) {
            let of_model = |bind: &Bind| options::of(before, Some(proxy), bind);
            let is_unfinished = |bind: &&Bind| !has(&whole, bind) && held.has(bind, &of_model(bind));
            let binds: Vec<Bind> = proxy.binds.iter().filter(is_unfinished).cloned().collect();
            if !binds.is_empty() {
                is_changed |= put_back(&mut whole, before, proxy, binds);
            }
        }
    }
    is_changed.then_some(whole)
}

/// Whether an address is in the model.
fn has(model: &Model, bind: &Bind) -> bool {
    let place = Place::of(bind);
    let frontends = model.proxies.iter().flat_map(|proxy| &proxy.binds);
    let stats = model.global.stats.sockets.iter().map(|socket| &socket.bind);
    frontends.chain(stats).any(|other| Place::of(other) == place)
}

/// Leads addresses to their frontend, which may have to come back; says whether it could.
fn put_back(whole: &mut Model, before: &Model, proxy: &Arc<Proxy>, binds: Vec<Bind>) -> bool {
    let of_same_name = whole.proxies.iter_mut().find(|other| other.role.is_frontend() && other.name == proxy.name);
    if let Some(other) = of_same_name {
        if other.disabled {
            return false;
        }
        Arc::make_mut(other).binds.extend(binds);
        return true;
    }
    if proxy.role == Role::Listen && whole.backend(&proxy.name).is_some() {
        return false;
    }
    whole.proxies.push(Arc::new(Proxy { binds, ..Proxy::clone(proxy) }));
    let backends = before.proxies.iter().filter(|other| other.role == Role::Backend);
    let missing: Vec<_> = backends.filter(|other| whole.backend(&other.name).is_none()).cloned().collect();
    whole.proxies.extend(missing);
    true
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use baton_model::{Address, BindOptions, Source};

    use super::*;

    fn frontend(name: &str, addresses: &[SocketAddr]) -> Arc<Proxy> {
        let mut proxy = Proxy::new(name, Role::Frontend);
        let bind = |address: &SocketAddr| Bind {
            address: Address::Inet(*address),
            name: None,
            id: None,
            options: BindOptions::default(),
            source: Source::default(),
        };
        proxy.binds = addresses.iter().map(bind).collect();
        Arc::new(proxy)
    }

    fn model(proxies: &[Arc<Proxy>]) -> Model {
        Model { proxies: proxies.to_vec(), ..Model::default() }
    }

    #[test]
    fn held_addresses_of_earlier_texts_lead_where_they_led() {
        let sockets: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let at: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut held = Inherited::default();
        sockets.into_iter().for_each(|socket| held.add(socket.into()).unwrap());
        let now = model(&[frontend("a", &at[..1])]);
        let backend = Arc::new(Proxy::new("app", Role::Backend));
        let oldest = model(&[frontend("a", &at[..3]), frontend("d", &[at[3]])]);
        let before = model(&[frontend("a", &[at[0], at[1], closed]), frontend("c", &[at[2]]), backend]);
        assert!(with_unfinished(&now, &[], &held).is_none());
        assert!(with_unfinished(&now, std::slice::from_ref(&now), &held).is_none());
        let whole = with_unfinished(&now, &[oldest, before], &held).unwrap();
        let binds = |name: &str| -> Vec<_> {
            let proxy = whole.frontend(name).unwrap();
            proxy.binds.iter().map(|bind| bind.address.clone()).collect()
        };
        let inet = |at: &[SocketAddr]| at.iter().copied().map(Address::Inet).collect::<Vec<_>>();
        assert_eq!(binds("a"), inet(&at[..2]), "what was closed stays closed");
        assert_eq!(binds("c"), inet(&at[2..3]), "the newest text says whose it was");
        assert_eq!(binds("d"), inet(&at[3..]));
        assert!(whole.backend("app").is_some());
    }
}
