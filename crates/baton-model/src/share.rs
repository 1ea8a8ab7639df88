//! What a new model has in common with the one in use: the same objects, so that everybody after it sees by the pointer what did not
//! change.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{Model, Proxy, Server};

/// Proxies between two pauses: about 0.1 ms of work.
const PROXIES_PER_PAUSE: usize = 32;

impl Model {
    /// Takes the proxies and servers of the model in use that are the same. What preparing it may still complain of, listening
    /// addresses and TLS of servers, counts as another one when it stands on another line.
    ///
    /// `pause` is called after every 32 proxies: a thread that works in the background may yield its CPU there.
    pub fn share(&mut self, used: &Model, mut pause: impl FnMut()) {
        for section in &mut self.peers {
            if let Some(before) =
                used.peers.iter().find(|before| before.is_same(section) && is_same(&before.proxy, &section.proxy))
            {
                *section = Arc::clone(before);
            }
        }
        let mut before = HashMap::with_capacity(used.proxies.len());
        for proxy in &used.proxies {
            before.entry((&*proxy.name, proxy.role)).or_insert(proxy);
        }
        for (count, proxy) in self.proxies.iter_mut().enumerate() {
            if count % PROXIES_PER_PAUSE == PROXIES_PER_PAUSE - 1 {
                pause();
            }
            match before.get(&(&*proxy.name, proxy.role)) {
                Some(before) if is_same(before, proxy) => *proxy = Arc::clone(before),
                Some(before) => share_servers(before, proxy),
                None => {}
            }
        }
    }
}

fn is_same(before: &Proxy, proxy: &Proxy) -> bool {
    let lines = |proxy: &Proxy| proxy.binds.iter().map(|bind| bind.source.line).collect::<Vec<_>>();
    before == proxy
        && lines(before) == lines(proxy)
        && before.servers.iter().zip(&proxy.servers).all(|(before, server)| is_same_server(before, server))
}

fn is_same_server(before: &Server, server: &Server) -> bool {
    before == server && (server.any_tls().is_none() || before.line.line == server.line.line)
}

fn share_servers(before: &Proxy, proxy: &mut Arc<Proxy>) {
    if before.servers.is_empty() || proxy.servers.is_empty() {
        return;
    }
    let named: HashMap<&str, &Arc<Server>> = before.servers.iter().map(|server| (&*server.name, server)).collect();
    for server in &mut Arc::make_mut(proxy).servers {
        if let Some(before) = named.get(&*server.name)
            && is_same_server(before, server)
        {
            *server = Arc::clone(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, Bind, BindOptions, Role, Source};

    fn backend(name: &str, weights: &[u32]) -> Arc<Proxy> {
        let mut proxy = Proxy::new(name, Role::Backend);
        for (number, weight) in weights.iter().enumerate() {
            let mut server = Server::new(format!("s{number}"), 1, None);
            server.weight = *weight;
            proxy.servers.push(server.into());
        }
        proxy.into()
    }

    fn model(proxies: Vec<Arc<Proxy>>) -> Model {
        Model { proxies, ..Model::default() }
    }

    #[test]
    fn what_is_the_same_is_one_object() {
        let used = model(vec![backend("a", &[1, 2]), backend("b", &[1, 2])]);
        let mut new = model(vec![backend("c", &[1]), backend("b", &[1, 3]), backend("a", &[1, 2])]);
        let expect = new.clone();
        new.share(&used, || {});
        assert_eq!(new, expect, "it says what it said");
        assert!(Arc::ptr_eq(&new.proxies[2], &used.proxies[0]));
        let (before, after) = (&used.proxies[1].servers, &new.proxies[1].servers);
        assert!(Arc::ptr_eq(&before[0], &after[0]) && !Arc::ptr_eq(&before[1], &after[1]));
    }

    #[test]
    fn a_line_above_makes_another_object_only_of_what_may_be_complained_of() {
        let moved = |proxy: &Arc<Proxy>| {
            let mut proxy = Proxy::clone(proxy);
            proxy.source.line += 1;
            proxy.binds.iter_mut().for_each(|bind| bind.source.line += 1);
            for server in &mut proxy.servers {
                Arc::make_mut(server).line.line += 1;
            }
            Arc::new(proxy)
        };
        let mut front = Proxy::new("f", Role::Frontend);
        front.binds.push(Bind {
            address: Address::Inet(([127, 0, 0, 1], 80).into()),
            name: None,
            id: None,
            options: BindOptions::default(),
            source: Source::default(),
        });
        let mut encrypted = Proxy::clone(&backend("e", &[1]));
        Arc::make_mut(&mut encrypted.servers[0]).tls = Some(Arc::default());
        let used = model(vec![backend("a", &[1]), front.into(), encrypted.into()]);
        let mut new = model(used.proxies.iter().map(moved).collect());
        new.share(&used, || {});
        let same: Vec<bool> = new.proxies.iter().zip(&used.proxies).map(|(new, old)| Arc::ptr_eq(new, old)).collect();
        assert_eq!(same, [true, false, false]);
    }
}
