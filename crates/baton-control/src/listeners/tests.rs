use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use baton_kernel::retire::SynFilter;
use baton_model::{Proxy, Role, Source};
use socket2::SockRef;

use super::*;

#[path = "../../../../tests/free_address.rs"]
mod free_address;
pub(crate) use free_address::free_address;

/// A model of frontends, each with its addresses.
fn model(frontends: &[(&str, &[Address])]) -> Model {
    let bind = |address: &Address| Bind {
        address: address.clone(),
        name: None,
        id: None,
        options: BindOptions::default(),
        source: Source::default(),
    };
    let proxy = |(name, addresses): &(&str, &[Address])| {
        let mut proxy = Proxy::new(*name, Role::Frontend);
        proxy.binds = addresses.iter().map(bind).collect();
        Arc::new(proxy)
    };
    Model { proxies: frontends.iter().map(proxy).collect(), ..Model::default() }
}

fn change(listeners: &mut Listeners, model: &Model) -> Result<Vec<OpenListener>, Vec<String>> {
    let words = |refused: Refused| refused.to_string();
    let prepared = listeners.prepare(model).map_err(|all| all.into_iter().map(words).collect::<Vec<_>>())?;
    let open = listeners.publish(prepared).map_err(|refused| vec![words(refused)])?.frontends;
    listeners.retire(model, Instant::now());
    Ok(open)
}

#[test]
fn an_address_stays_open_when_it_moves_to_another_frontend() {
    let address = Address::Inet(free_address());
    let mut listeners = Listeners::new(2);
    let first = change(&mut listeners, &model(&[("a", std::slice::from_ref(&address))])).unwrap();
    let second = change(&mut listeners, &model(&[("b", std::slice::from_ref(&address))])).unwrap();
    assert_eq!((first[0].id, &*first[0].frontend), (second[0].id, "a"));
    assert_eq!(&*second[0].frontend, "b");
    assert_eq!(second[0].shards.len(), 2, "one socket for each core");
    assert!(Arc::ptr_eq(&first[0].shards, &second[0].shards));
    assert_eq!(listeners.leaving_count(), 0);
}

#[test]
fn a_taken_port_is_refused_and_nothing_stays_open() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (free, taken_address) = (free_address(), taken.local_addr().unwrap());
    let mut listeners = Listeners::new(1);
    let wanted = model(&[("a", &[Address::Inet(free), Address::Inet(taken_address)])]);
    let reasons = change(&mut listeners, &wanted).unwrap_err();
    assert!(reasons.len() == 1 && reasons[0].contains("frontend a: cannot listen on"), "{reasons:?}");
    assert!(TcpListener::bind(free).is_ok(), "the free one was given up again");
}

#[test]
fn a_successor_may_listen_beside_who_lets_it() {
    let address = Address::Inet(free_address());
    let wanted = model(&[("a", std::slice::from_ref(&address))]);
    let (mut old, mut new) = (Listeners::new(2), Listeners::new(2));
    let first = change(&mut old, &wanted).unwrap();
    assert!(change(&mut new, &wanted).is_err(), "an address is ours alone");
    new.beside_others(true);
    let prepared = new.prepare(&wanted).unwrap();
    let clients = |address: &Address| match address {
        Address::Inet(address) => (0..60).map(|_| TcpStream::connect(address).unwrap()).collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    let accepted = |open: &OpenListener| {
        let all = |shard| std::iter::from_fn(|| SockRef::from(shard).accept().ok()).count();
        open.shards.iter().map(all).sum::<usize>()
    };
    let _before = clients(&address);
    assert_eq!(accepted(&first[0]), 60, "prepared, it takes nobody");
    let second = new.publish(prepared).unwrap().frontends;
    let _after = clients(&address);
    let (one, other) = (accepted(&first[0]), accepted(&second[0]));
    assert!(one > 5 && other > 5 && one + other == 60, "{one} + {other}");
}

#[test]
fn an_address_belongs_to_one_frontend() {
    let address = Address::Inet(free_address());
    let one = std::slice::from_ref(&address);
    let reasons = change(&mut Listeners::new(1), &model(&[("a", one), ("b", one)])).unwrap_err();
    assert!(reasons[0].contains("is already used by frontend a"), "{reasons:?}");
}

#[test]
fn a_precise_address_opens_beside_our_own_wildcard() {
    let precise = free_address();
    let wildcard = SocketAddr::from(([0, 0, 0, 0], precise.port()));
    let mut listeners = Listeners::new(2);
    change(&mut listeners, &model(&[("a", &[Address::Inet(wildcard)])])).unwrap();
    let both = [Address::Inet(wildcard), Address::Inet(precise)];
    assert_eq!(change(&mut listeners, &model(&[("a", &both)])).unwrap().len(), 2);
}

#[test]
fn a_removed_address_is_closed_once_empty_and_can_come_back_before() {
    let address = free_address();
    let (with, without) = (model(&[("a", &[Address::Inet(address)])]), model(&[]));
    let mut listeners = Listeners::new(1);
    let first = change(&mut listeners, &with).unwrap();
    let waiting = TcpStream::connect(address).unwrap();
    change(&mut listeners, &without).unwrap();
    let later = Instant::now() + Duration::from_secs(5);
    assert_eq!(listeners.look(later), [], "somebody waits in its queue");

    let again = change(&mut listeners, &with).unwrap();
    assert_eq!((again[0].id, listeners.leaving_count()), (first[0].id, 0), "the same sockets, with who waits");

    change(&mut listeners, &without).unwrap();
    drop(waiting);
    drop(SockRef::from(&first[0].shards[0]).accept().unwrap());
    let now = Instant::now();
    assert_eq!(listeners.look(now), []);
    assert_eq!(listeners.look(now + Duration::from_secs(1)), [first[0].id]);
    listeners.closed(first[0].id);
    assert!(TcpListener::bind(address).is_ok(), "free although the cores' descriptors may still be open");
}

#[test]
fn an_address_that_cannot_come_back_refuses_the_change_and_nothing_is_half_done() {
    let folder = tempfile::tempdir().unwrap();
    let (comes, stuck, new, path) = (free_address(), free_address(), free_address(), folder.path().join("web.sock"));
    let mut both = model(&[("a", &[Address::Inet(comes), Address::Inet(stuck)])]);
    let mut listeners = Listeners::new(2);
    let first = change(&mut listeners, &both).unwrap();
    let kept = model(&[("b", &[Address::Inet(free_address())])]);
    let before = change(&mut listeners, &kept).unwrap();
    assert_eq!(listeners.leaving_count(), 2);
    // The kernel takes the filter of this one socket off no more.
    SynFilter::lock(&first[1].shards[1]).unwrap();
    let waiting = TcpStream::connect_timeout(&comes, Duration::from_millis(50));
    assert!(waiting.is_err(), "it takes no new connections");

    let others =
        model(&[("b", &[before[0].bind.address.clone()]), ("c", &[Address::Inet(new), Address::Unix(path.clone())])]);
    both.proxies.extend(others.proxies);
    let mut proxy = Proxy::clone(&both.proxies[1]);
    proxy.binds[0].options.backlog = Some(7);
    both.proxies[1] = Arc::new(proxy);
    let reasons = change(&mut listeners, &both).unwrap_err();
    assert!(reasons[0].contains(&stuck.to_string()), "{reasons:?}");

    assert_eq!(listeners.leaving_count(), 2, "both are on their way out again");
    let is_kept_out = |shard: &OwnedFd| SynFilter::is_attached(shard).unwrap();
    assert!(first.iter().all(|open| open.shards.iter().all(is_kept_out)));
    assert!(TcpListener::bind(new).is_ok() && !path.exists(), "what was new is closed");
    let options: Vec<_> = listeners.open.values().map(|listener| listener.options.backlog).collect();
    assert_ne!(options, [7], "and who stays has its options");
    let same = change(&mut listeners, &kept).unwrap();
    assert_eq!(same[0].id, before[0].id);

    // The next change is done: what could come back does, and what is stuck is closed and opened again.
    let mut next = both.clone();
    let mut proxy = Proxy::clone(&next.proxies[0]);
    proxy.binds.truncate(1);
    next.proxies[0] = Arc::new(proxy);
    let opened = change(&mut listeners, &next).unwrap();
    assert_eq!((opened.len(), opened[0].id, listeners.leaving_count()), (4, first[0].id, 1));
    let _served = TcpStream::connect(comes).unwrap();
    let now = Instant::now();
    assert_eq!(listeners.look(now), []);
    assert_eq!(listeners.look(now + Duration::from_secs(1)), [first[1].id]);
    listeners.closed(first[1].id);
    assert_eq!(change(&mut listeners, &both).unwrap().len(), 5);
}

#[test]
fn a_removed_address_goes_on_in_who_takes_over_and_wants_it() {
    let address = free_address();
    let (with, without) = (model(&[("a", &[Address::Inet(address)])]), model(&[]));
    let later = Instant::now() + Duration::from_secs(100);
    for is_wanted in [true, false] {
        let (mut old, mut new) = (Listeners::new(2), Listeners::new(2));
        let first = change(&mut old, &with).unwrap();
        let waits = TcpStream::connect(address).unwrap();
        change(&mut old, &without).unwrap();
        let mut given = Inherited::default();
        for (_, shards) in old.offer_again() {
            shards.iter().for_each(|shard| given.add(shard.try_clone().unwrap()).unwrap());
        }
        assert_eq!((given.len(), old.look(later)), (2, vec![]), "nothing is closed before it is decided who has it");
        new.inherit(given);
        let second = change(&mut new, if is_wanted { &with } else { &without }).unwrap();
        let accepted =
            |open: &OpenListener| open.shards.iter().filter(|shard| SockRef::from(shard).accept().is_ok()).count();
        if is_wanted {
            old.handed_over(&Place::of(&second[0].bind), true);
            assert_eq!(old.look(Instant::now()), [first[0].id]);
            old.closed(first[0].id);
            let _comes = TcpStream::connect(address).unwrap();
            assert!(accepted(&second[0]) > 0, "who waited and who comes is served");
        } else {
            new.drop_left();
            old.keep_offered();
            assert!(accepted(&first[0]) > 0);
            assert_eq!(old.look(later), [first[0].id]);
            old.closed(first[0].id);
            assert!(TcpListener::bind(address).is_ok());
        }
        drop(waits);
    }
}

#[test]
fn a_unix_socket_goes_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web.sock");
    let mut listeners = Listeners::new(2);
    let open = change(&mut listeners, &model(&[("a", &[Address::Unix(path.clone())])])).unwrap();
    assert_eq!(open[0].shards.len(), 1);
    let mut waiting = UnixStream::connect(&path).unwrap();
    change(&mut listeners, &model(&[])).unwrap();
    assert!(!path.exists());
    drop(SockRef::from(&open[0].shards[0]).accept().unwrap());
    assert_eq!(waiting.read(&mut [0]).unwrap(), 0, "accepted and closed in order");
}

#[test]
fn options_follow_on_living_sockets_or_are_refused() {
    let address = Address::Inet(free_address());
    let mut listeners = Listeners::new(1);
    let mut wanted = model(&[("a", &[address])]);
    change(&mut listeners, &wanted).unwrap();
    let mut with = |edit: fn(&mut Bind)| {
        let mut proxy = (*wanted.proxies[0]).clone();
        edit(&mut proxy.binds[0]);
        wanted.proxies = vec![Arc::new(proxy)];
        change(&mut listeners, &wanted)
    };
    assert!(with(|bind| bind.options.backlog = Some(7)).is_ok());
    assert!(with(|bind| bind.options.defer_accept = true).is_ok());
    let reasons = with(|bind| bind.options.transparent = true).unwrap_err();
    assert!(reasons[0].contains("'transparent' of an open address cannot change"), "{reasons:?}");
}

#[test]
fn an_address_by_another_interface_is_another_place() {
    let address = free_address();
    let bind = |interface: Option<&str>| {
        let options = BindOptions { interface: interface.map(str::to_owned), ..BindOptions::default() };
        Bind { address: Address::Inet(address), name: None, id: None, options, source: Source::default() }
    };
    let with = |binds: Vec<Bind>| {
        let mut proxy = Proxy::new("a", Role::Frontend);
        proxy.binds = binds;
        Model { proxies: vec![Arc::new(proxy)], ..Model::default() }
    };
    let mut listeners = Listeners::new(2);
    let both = change(&mut listeners, &with(vec![bind(None), bind(Some("lo"))])).unwrap();
    assert_ne!(both[0].id, both[1].id);
    let _client = TcpStream::connect(address).unwrap();
    let accepted =
        |open: &OpenListener| open.shards.iter().filter(|shard| SockRef::from(shard).accept().is_ok()).count();
    assert_eq!((accepted(&both[0]), accepted(&both[1])), (0, 1), "the more precise one is preferred");
    let one = change(&mut listeners, &with(vec![bind(Some("lo"))])).unwrap();
    assert_eq!((one[0].id, listeners.leaving_count()), (both[1].id, 1));
    let same = change(&mut listeners, &with(vec![bind(Some("lo")), bind(Some("lo"))])).unwrap();
    assert_eq!(same.len(), 1, "named twice with the same options it is one address");
    let mut other = bind(Some("lo"));
    other.options.maxconn = Some(1);
    let reasons = change(&mut listeners, &with(vec![bind(Some("lo")), other])).unwrap_err();
    assert!(reasons[0].contains("interface lo is already used by frontend a"), "{reasons:?}");
}

#[test]
fn an_open_address_refuses_exactly_what_the_table_of_effects_says_that_it_cannot_follow() {
    let check = |before: BindOptions, after: BindOptions| {
        let address = Address::Inet(free_address());
        let with = |options: &BindOptions| {
            let mut model = model(&[("a", std::slice::from_ref(&address))]);
            Arc::make_mut(&mut model.proxies[0]).binds[0].options = options.clone();
            model
        };
        let (old, new) = (with(&before), with(&after));
        let changes = baton_model::diff(&old, &new).changes;
        assert_eq!(changes.len(), 1, "{before:?} -> {after:?}");
        let needs_socket = changes[0].effects().needs_socket;
        let mut listeners = Listeners::new(1);
        match change(&mut listeners, &old) {
            Ok(open) => assert_eq!(open.len(), 1),
            Err(reasons) if before.transparent && !nix::unistd::geteuid().is_root() => {
                return eprintln!("skipped: 'transparent' takes root: {reasons:?}");
            }
            Err(reasons) => panic!("{before:?}: {reasons:?}"),
        }
        let reasons = change(&mut listeners, &new).err().unwrap_or_default();
        let is_refused = reasons.iter().any(|reason| reason.contains("of an open address cannot change"));
        assert_eq!(
            (needs_socket, needs_socket),
            (is_refused, !reasons.is_empty()),
            "{before:?} -> {after:?}: {reasons:?}"
        );
    };
    let plain = BindOptions::default;
    let options = [
        BindOptions { accept_proxy: true, ..plain() },
        BindOptions { backlog: Some(7), ..plain() },
        BindOptions { maxconn: Some(7), ..plain() },
        BindOptions { transparent: true, ..plain() },
        BindOptions { v6only: Some(true), ..plain() },
        BindOptions { defer_accept: true, ..plain() },
        BindOptions { tfo: true, ..plain() },
        BindOptions { mss: Some(1200), ..plain() },
        BindOptions { tcp_user_timeout_ms: Some(7), ..plain() },
        BindOptions { shards: Some(2), ..plain() },
    ];
    for with in options {
        check(plain(), with.clone());
        check(with, plain());
    }
}
