//! What DNS says of servers now: plain data beside the [`Model`](crate::Model), keyed by name. It is observed, and no override: what is in
//! force is the model with what was discovered in it, and the overrides of operators on top.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::{Address, Family, NetAddress, Resolution, Server, ServerTarget};

/// What is known of all servers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Discovered {
    backends: BTreeMap<Arc<str>, BTreeMap<Arc<str>, DiscoveredServer>>,
}

/// What DNS said of a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DiscoveredServer {
    /// The section that was asked.
    pub resolvers: Arc<str>,
    /// The name that it was asked for: it counts as long as the server has that name.
    pub name: Arc<str>,
    /// Its address; `None`: it has none, and is in maintenance.
    pub address: Option<IpAddr>,
    /// What SRV records say; `None`: none of them is for it now, or it is found by addresses alone.
    pub service: Option<DiscoveredService>,
    /// The weight of the last SRV record that was for it.
    pub weight: Option<u32>,
}

/// Host and port by an SRV record.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DiscoveredService {
    /// The host.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
}

impl Discovered {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.backends.is_empty()
    }

    /// Of a server.
    pub fn get(&self, backend: &str, server: &str) -> Option<&DiscoveredServer> {
        self.backends.get(backend)?.get(server)
    }

    /// Of the servers of a backend.
    pub fn of(&self, backend: &str) -> Option<&BTreeMap<Arc<str>, DiscoveredServer>> {
        self.backends.get(backend)
    }

    /// The backends of whose servers something is known.
    pub fn backends(&self) -> impl Iterator<Item = &Arc<str>> {
        self.backends.keys()
    }

    /// All of it: backend, server, and what is known.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, &DiscoveredServer)> {
        self.backends.iter().flat_map(|(backend, servers)| servers.iter().map(move |(name, one)| (backend, name, one)))
    }

    /// Notes what is known of a server from now on.
    pub fn set(&mut self, backend: Arc<str>, server: Arc<str>, one: DiscoveredServer) {
        self.backends.entry(backend).or_default().insert(server, one);
    }

    /// Forgets servers.
    pub fn retain(&mut self, mut stays: impl FnMut(&str, &str, &DiscoveredServer) -> bool) {
        self.backends.retain(|backend, servers| {
            servers.retain(|server, one| stays(backend, server, one));
            !servers.is_empty()
        });
    }
}

impl DiscoveredServer {
    /// Whether it is about this server as it is configured.
    pub fn is_of(&self, server: &Server) -> bool {
        let Some(resolution) = &server.resolution else { return false };
        resolution.resolvers == self.resolvers
            && asked_name(server, resolution).is_some_and(|name| is_same_name(name, &self.name))
    }

    /// Has a server as DNS says.
    pub fn put(&self, server: &mut Server) {
        let Some(resolution) = server.resolution.clone() else { return };
        let mut port = server.address.port();
        if let Some(name) = &resolution.service {
            let host = self.service.as_ref().map_or(name, |service| &service.host);
            server.address.host = NetAddress::Name(host.to_string(), Family::Any);
            port = self.service.as_ref().map_or(0, |service| service.port);
            server.weight_by_dns = self.weight.filter(|_| !resolution.ignore_weight);
        }
        server.address.target = match self.address {
            Some(address) => ServerTarget::Fixed(Address::Inet(SocketAddr::new(address, port))),
            None => ServerTarget::Unresolved { port },
        };
    }
}

/// Whether names are one, however they are written.
fn is_same_name(one: &str, other: &str) -> bool {
    let bare = |name| str::strip_suffix(name, ".").unwrap_or(name);
    bare(one).eq_ignore_ascii_case(bare(other))
}

/// The name that is looked up for a server; `None`: it has a literal address.
fn asked_name<'s>(server: &'s Server, resolution: &'s Resolution) -> Option<&'s str> {
    match (&resolution.service, &server.address.host) {
        (Some(service), _) => Some(service),
        (None, NetAddress::Name(name, _)) => Some(name),
        (None, NetAddress::Literal) => None,
    }
}

impl Server {
    /// The host that is looked up for its addresses; `None`: it has a literal address, or no SRV record is for it.
    pub fn found_host(&self) -> Option<&str> {
        let service = self.resolution.as_ref().and_then(|resolution| resolution.service.as_deref());
        match &self.address.host {
            NetAddress::Name(name, _) => Some(&**name).filter(|name| service != Some(name)),
            NetAddress::Literal => None,
        }
    }

    /// The section that is asked for it at run time, and the name that is looked up.
    pub fn looked_up(&self) -> Option<(&Arc<Resolution>, &str)> {
        let resolution = self.resolution.as_ref()?;
        Some((resolution, asked_name(self, resolution)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(service: Option<&str>) -> Server {
        let mut server = Server::new("s1", 1, None);
        let port = if service.is_some() { 0 } else { 80 };
        server.address.host = NetAddress::Name(service.unwrap_or("app.example").into(), Family::Any);
        server.address.target = ServerTarget::Unresolved { port };
        let service = service.map(Into::into);
        server.resolution = Some(Arc::new(Resolution { service, ..Resolution::new("r") }));
        server
    }

    fn known(name: &str, address: Option<&str>) -> DiscoveredServer {
        let address = address.map(|address| address.parse().expect("an address"));
        DiscoveredServer { resolvers: "r".into(), name: name.into(), address, service: None, weight: None }
    }

    #[test]
    fn an_address_counts_for_the_name_that_was_asked_for() {
        let mut server = server(None);
        assert!(known("app.example", None).is_of(&server) && !known("other.example", None).is_of(&server));
        assert!(known("App.Example.", None).is_of(&server));
        known("app.example", Some("192.0.2.1")).put(&mut server);
        assert_eq!(server.address.inet().expect("an address").to_string(), "192.0.2.1:80");
        assert!(known("app.example", None).is_of(&server));
        known("app.example", None).put(&mut server);
        assert!(server.address.is_unresolved() && server.address.port() == 80);
    }

    #[test]
    fn a_service_gives_host_port_and_weight() {
        let mut server = server(Some("_app._tcp.example"));
        let service = Some(DiscoveredService { host: "a.example".into(), port: 81 });
        let one = DiscoveredServer { service, weight: Some(9), ..known("_app._tcp.example", Some("192.0.2.1")) };
        assert!(one.is_of(&server));
        one.put(&mut server);
        assert_eq!(server.address.inet().expect("an address").to_string(), "192.0.2.1:81");
        assert_eq!((server.weight_by_dns, server.address.to_string().as_str()), (Some(9), "a.example:81"));
        let gone = DiscoveredServer { service: None, address: None, ..one };
        gone.put(&mut server);
        assert!(server.address.is_unresolved() && server.found_host().is_none());
        assert_eq!(server.weight_by_dns, Some(9), "as in HAProxy, the weight of a record that is gone stays");
    }
}
