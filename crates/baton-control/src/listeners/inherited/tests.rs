use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

use baton_kernel::{ListenerGroup, netns};
use baton_model::{BindOptions, Model, Proxy, Role, Source};
use baton_proxy::generation::OpenListener;
use socket2::SockRef;

use super::super::Listeners;
use super::*;

/// A model of one frontend with these addresses, and what `edit` does to their options.
fn model(addresses: &[Address], edit: impl Fn(&mut BindOptions)) -> Model {
    let mut proxy = Proxy::new("f", Role::Frontend);
    for address in addresses {
        let mut options = BindOptions::default();
        edit(&mut options);
        proxy.binds.push(Bind { address: address.clone(), name: None, id: None, options, source: Source::default() });
    }
    Model { proxies: vec![proxy.into()], ..Model::default() }
}

fn plain(address: impl Into<Address>) -> Model {
    model(&[address.into()], |_| {})
}

fn change(listeners: &mut Listeners, model: &Model) -> Result<Vec<OpenListener>, String> {
    let words = |refused: Vec<baton_proxy::Refused>| refused.iter().map(ToString::to_string).collect::<String>();
    let prepared = listeners.prepare(model).map_err(words)?;
    let open = listeners.publish(prepared).map_err(|refused| refused.to_string())?;
    listeners.retire(model, Instant::now());
    Ok(open.frontends)
}

/// Another process's sockets at one TCP address, with a descriptor of each for us.
fn giver(shards: usize) -> (ListenerGroup, SocketAddr, Inherited) {
    let any = Endpoint::Inet("127.0.0.1:0".parse().unwrap());
    let group = ListenerGroup::open(&any, &ListenOptions::default(), shards).unwrap();
    let address = group.local().inet().unwrap();
    let mut pool = Inherited::default();
    for shard in group.shards() {
        pool.add(shard.as_fd().try_clone_to_owned().unwrap()).unwrap();
    }
    (group, address, pool)
}

fn socket_of(fd: &impl AsFd) -> u64 {
    SocketIdentity::of(fd).unwrap().unwrap().socket
}

fn accept_one(open: &OpenListener) {
    let found = open.shards.iter().any(|shard| SockRef::from(shard).accept().is_ok());
    assert!(found, "somebody waits at {}", open.bind.address);
}

#[test]
fn a_given_address_is_taken_with_all_its_sockets_and_who_waits_in_them() {
    for (cores, shards) in [(2, 2), (1, 3), (4, 1)] {
        let (group, address, pool) = giver(shards);
        let waiting = TcpStream::connect(address).unwrap();
        let mut listeners = Listeners::new(cores);
        listeners.inherit(pool);
        let open = change(&mut listeners, &plain(Address::Inet(address))).unwrap();
        let taken: Vec<_> = open[0].shards.iter().map(socket_of).collect();
        assert_eq!(taken, group.shards().iter().map(socket_of).collect::<Vec<_>>(), "in the giver's order");
        drop(group);
        accept_one(&open[0]);
        drop(waiting);
        assert!(listeners.left().is_empty());
    }
}

#[test]
fn what_is_not_asked_for_is_left_and_still_the_givers() {
    let (group, address, pool) = giver(2);
    let (_other, wanted, more) = giver(1);
    let mut listeners = Listeners::new(2);
    listeners.inherit(pool);
    listeners.inherit(more);
    change(&mut listeners, &plain(Address::Inet(wanted))).unwrap();
    let left: Vec<_> = listeners.left().known().map(ToString::to_string).collect();
    assert_eq!(left, [address.to_string(), address.to_string()]);
    listeners.drop_left();
    assert!(listeners.left().is_empty());
    let _client = TcpStream::connect(address).unwrap();
    let accepted = group.shards().iter().filter(|shard| shard.accept().unwrap().is_some()).count();
    assert_eq!(accepted, 1, "nothing was done to them");
}

#[test]
fn a_refused_change_leaves_the_pool_as_it_was() {
    let (group, address, pool) = giver(2);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut listeners = Listeners::new(2);
    listeners.inherit(pool);
    let both = [Address::Inet(address), Address::Inet(taken.local_addr().unwrap())];
    let reason = change(&mut listeners, &model(&both, |bind| bind.backlog = Some(5))).map(drop).unwrap_err();
    assert!(reason.contains("already in use"), "{reason}");
    let left: Vec<_> = listeners.left().known().map(|known| known.identity.socket).collect();
    assert_eq!(left, group.shards().iter().map(socket_of).collect::<Vec<_>>());
    let queue = baton_kernel::retire::accept_queue(&group.shards()[0]).unwrap();
    assert_ne!(queue.limit, 5, "the giver's sockets are as they were");
    assert_eq!(change(&mut listeners, &plain(Address::Inet(address))).unwrap().len(), 1);
}

#[test]
fn options_of_the_configuration_are_applied() {
    let (group, address, pool) = giver(1);
    let mut listeners = Listeners::new(1);
    listeners.inherit(pool);
    change(&mut listeners, &model(&[Address::Inet(address)], |bind| bind.backlog = Some(5))).unwrap();
    assert_eq!(baton_kernel::retire::accept_queue(&group.shards()[0]).unwrap().limit, 5);
}

#[test]
fn the_same_port_of_both_families_is_two_addresses() {
    let four = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = four.local_addr().unwrap().port();
    let six = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
    six.set_only_v6(true).unwrap();
    let six_address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    six.bind(&six_address.into()).unwrap();
    six.listen(10).unwrap();
    let mut pool = Inherited::default();
    pool.add(six.try_clone().unwrap().into()).unwrap();
    pool.add(four.try_clone().unwrap().into()).unwrap();
    let mut listeners = Listeners::new(1);
    listeners.inherit(pool);
    let both = [Address::Inet(four.local_addr().unwrap()), Address::Inet(six_address)];
    // `v4v6` is another socket than the one there is.
    let prepared = listeners.prepare(&model(&both, |bind| bind.v6only = Some(false)));
    assert!(prepared.is_err(), "the port is taken for IPv4");
    let open = change(&mut listeners, &model(&both, |bind| bind.v6only = Some(true))).unwrap();
    let sockets: Vec<_> = open.iter().map(|open| socket_of(&open.shards[0])).collect();
    assert_eq!(sockets, [socket_of(&four), socket_of(&six)]);
}

#[test]
fn a_unix_path_stays_on_disk_until_it_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web.sock");
    // As HAProxy makes it: bound aside and renamed.
    let aside = folder.path().join("web.sock.17.tmp");
    let theirs = UnixListener::bind(&aside).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    let mut pool = Inherited::default();
    pool.add(theirs.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let mut listeners = Listeners::new(2);
    listeners.inherit(pool);
    let open = change(&mut listeners, &plain(Address::Unix(path.clone()))).unwrap();
    drop(theirs);
    let client = UnixStream::connect(&path).unwrap();
    accept_one(&open[0]);
    drop(client);
    change(&mut listeners, &Model::default()).unwrap();
    assert!(!path.exists(), "removed with the address");
}

#[test]
fn a_path_that_leads_elsewhere_is_opened_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web.sock");
    let theirs = UnixListener::bind(&path).unwrap();
    let mut pool = Inherited::default();
    pool.add(theirs.as_fd().try_clone_to_owned().unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut listeners = Listeners::new(1);
    listeners.inherit(pool);
    let open = change(&mut listeners, &plain(Address::Unix(path.clone()))).unwrap();
    assert_ne!(socket_of(&open[0].shards[0]), socket_of(&theirs));
    let _client = UnixStream::connect(&path).unwrap();
    accept_one(&open[0]);
}

#[test]
fn abstract_names_and_numbers_are_found() {
    let name = format!("baton-inherited-{}", std::process::id());
    let mut padded = [0; 107];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(padded).unwrap();
    let theirs = UnixListener::bind_addr(&address).unwrap();
    let numbered = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut pool = Inherited::default();
    pool.add(theirs.as_fd().try_clone_to_owned().unwrap()).unwrap();
    pool.add_known(numbered.as_fd().try_clone_to_owned().unwrap(), None, Some(9999)).unwrap();
    let mut listeners = Listeners::new(1);
    listeners.inherit(pool);
    let both = [Address::Abstract(name), Address::Fd(9999)];
    let open = change(&mut listeners, &model(&both, |_| {})).unwrap();
    let sockets: Vec<_> = open.iter().map(|open| socket_of(&open.shards[0])).collect();
    assert_eq!(sockets, [socket_of(&theirs), socket_of(&numbered)]);
}

#[test]
fn a_socket_of_another_namespace_or_interface_is_not_ours() {
    let ours = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = ours.local_addr().unwrap();
    drop(ours);
    match netns::in_new(|| TcpListener::bind(address).unwrap()) {
        Err(error) => eprintln!("SKIPPED: no right to a network namespace ({error})"),
        Ok(theirs) => {
            let mut pool = Inherited::default();
            pool.add(theirs.as_fd().try_clone_to_owned().unwrap()).unwrap();
            let mut listeners = Listeners::new(1);
            listeners.inherit(pool);
            let open = change(&mut listeners, &plain(Address::Inet(address))).unwrap();
            assert_ne!(socket_of(&open[0].shards[0]), socket_of(&theirs));
            assert_eq!(listeners.left().len(), 1);
        }
    }
    let (group, address, pool) = giver(1);
    drop(group);
    let mut listeners = Listeners::new(1);
    listeners.inherit(pool);
    let bound = model(&[Address::Inet(address)], |bind| bind.interface = Some("lo".into()));
    // The kernel may refuse another socket beside it, but it is not taken for the one asked for.
    let _ = change(&mut listeners, &bound);
    assert_eq!(listeners.left().len(), 1);
}

#[test]
fn what_is_no_listener_is_refused_and_doubles_are_closed() {
    let (group, _, mut pool) = giver(1);
    pool.add(group.shards()[0].as_fd().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!(pool.len(), 1);
    let mut again = Inherited::of_strangers();
    again.add(group.shards()[0].as_fd().try_clone_to_owned().unwrap()).unwrap();
    again.extend(pool);
    assert!(again.len() == 1 && again.known().all(|known| known.is_in_order), "known from the other pool");
    let mut pool = again;
    let file = tempfile::tempfile().unwrap();
    let reason = pool.add(file.into()).unwrap_err();
    assert_eq!(reason.to_string(), "the descriptor is not a socket");
    let (one, _other) = UnixStream::pair().unwrap();
    assert!(matches!(pool.add(one.into()), Err(Unusable::NoListener(_))));
}

#[test]
fn an_address_that_another_process_serves_by_now_is_only_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web.sock");
    let any = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let both = [Address::Inet(any), Address::Unix(path.clone())];
    let mut old = Listeners::new(2);
    let opened = change(&mut old, &model(&both, |_| {})).unwrap();
    let mut pool = Inherited::default();
    for offer in old.offers() {
        for socket in offer.sockets {
            pool.add(socket.as_fd().try_clone_to_owned().unwrap()).unwrap();
        }
    }
    let mut new = Listeners::new(2);
    new.inherit(pool);
    let open = change(&mut new, &model(&both, |_| {})).unwrap();
    for address in both.iter().cloned() {
        old.handed_over(&crate::listeners::Place { address, interface: None, namespace: None }, true);
    }
    let now = Instant::now();
    old.retire_all(now);
    let mut closed = old.look(now);
    closed.sort();
    assert_eq!(closed, opened.iter().map(|open| open.id).collect::<Vec<_>>(), "at once");
    closed.into_iter().for_each(|id| old.closed(id));
    drop((old, opened));
    let _clients: Vec<_> = (0..20).map(|_| TcpStream::connect(any).unwrap()).collect();
    let accepted = |open: &OpenListener| {
        let all = |shard| std::iter::from_fn(|| SockRef::from(shard).accept().ok()).count();
        open.shards.iter().map(all).sum::<usize>()
    };
    assert_eq!(accepted(&open[0]), 20);
    let _client = UnixStream::connect(&path).unwrap();
    assert_eq!(accepted(&open[1]), 1);
}

#[test]
fn of_very_many_sockets_only_those_of_the_address_are_looked_at() {
    let givers: Vec<_> = (0..60).map(|_| giver(2)).collect();
    let mut pool = Inherited::default();
    let mut addresses = Vec::new();
    let _groups: Vec<_> = givers
        .into_iter()
        .map(|(group, address, given)| {
            pool.extend(given);
            addresses.push(address);
            group
        })
        .collect();
    assert_eq!((pool.len(), pool.by_cookie.len()), (120, 120));
    for address in &addresses {
        assert_eq!(pool.near(&Trait::Port(address.port())).count(), 2);
        let bind = &plain(Address::Inet(*address)).proxies[0].binds[0].clone();
        let taken = pool.take(bind, &ListenOptions::default());
        assert_eq!(taken.len(), 2);
        pool.put_back(taken);
        assert_eq!(pool.take(bind, &ListenOptions::default()).len(), 2);
    }
    assert!(
        pool.is_empty() && pool.by_trait.is_empty() && pool.by_cookie.is_empty(),
        "nothing is left of what was taken"
    );
}
