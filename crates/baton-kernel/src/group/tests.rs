use std::net::TcpStream;

use super::*;
use crate::testing::{LOOPBACKS, endpoint};

fn accept_all(listening: &Listening) -> usize {
    std::iter::from_fn(|| listening.accept().unwrap()).count()
}

fn connect(group: &ListenerGroup, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(group.local().inet().unwrap()).unwrap()).collect()
}

#[test]
fn shards_share_an_address_and_its_connections() {
    for text in LOOPBACKS {
        let group = ListenerGroup::open(&endpoint(text), &ListenOptions::default(), 3).unwrap();
        assert_eq!(group.shards().len(), 3);
        assert!(group.shards().iter().all(|shard| shard.local() == group.local()));
        assert!(group.shards().iter().all(|shard| shard.endpoint() == &endpoint(text)));
        let clients = connect(&group, 200);
        let counts: Vec<_> = group.shards().iter().map(accept_all).collect();
        assert_eq!(counts.iter().sum::<usize>(), clients.len());
        assert!(counts.iter().all(|&count| count > 20), "{counts:?}");
    }
}

#[test]
fn a_group_may_be_alone() {
    let alone = ListenOptions { exclusive: true, ..ListenOptions::default() };
    let group = ListenerGroup::open(&endpoint("127.0.0.1:0"), &alone, 2).unwrap();
    let taken = ListenerGroup::open(group.local(), &alone, 2).unwrap_err();
    assert_eq!(taken.reason, ListenReason::InUse);
    let single = ListenerGroup::open(&endpoint("127.0.0.1:0"), &ListenOptions::default(), 1).unwrap();
    let taken = ListenerGroup::open(single.local(), &ListenOptions::default(), 2).unwrap_err();
    assert_eq!(taken.reason, ListenReason::InUse, "one shard shares with nobody");
}

#[test]
fn shrinking_loses_nobody_and_growing_serves_all() {
    let mut group = ListenerGroup::open(&endpoint("127.0.0.1:0"), &ListenOptions::default(), 4).unwrap();
    let before = connect(&group, 100);
    let mut tail = group.shrink(2).unwrap();
    assert_eq!((group.shards().len(), tail.len()), (2, 2));
    let waiting: Vec<_> = tail.iter().map(accept_all).collect();
    assert!(waiting.iter().all(|&count| count > 5), "{waiting:?} came before");
    let after = connect(&group, 100);
    assert_eq!(tail.iter().map(accept_all).sum::<usize>(), 0, "nobody new comes to the tail");
    while let Some(last) = tail.pop() {
        drop(last);
    }
    let later = connect(&group, 100);
    let counts: Vec<_> = group.shards().iter().map(accept_all).collect();
    let total = before.len() + after.len() + later.len() - waiting.iter().sum::<usize>();
    assert_eq!(counts.iter().sum::<usize>(), total);
    assert!(counts.iter().all(|&count| count > 50), "{counts:?}");

    group.grow(4).unwrap();
    let _grown = connect(&group, 200);
    let counts: Vec<_> = group.shards().iter().map(accept_all).collect();
    assert!(counts.iter().all(|&count| count > 20), "{counts:?}");
    assert!(group.shrink(0).unwrap().len() == 3, "one always stays");
}

#[test]
fn unix_shards_are_one_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sock");
    let mut group = ListenerGroup::open(&Endpoint::Unix(path.clone()), &ListenOptions::default(), 2).unwrap();
    let _client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    assert_eq!(accept_all(&group.shards()[1]), 1);
    assert_eq!(group.shrink(1).unwrap().len(), 1);
    let _client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    assert_eq!(accept_all(&group.shards()[0]), 1);
}

#[test]
fn an_adopted_group_goes_on() {
    let group = ListenerGroup::open(&endpoint("127.0.0.1:0"), &ListenOptions::default(), 2).unwrap();
    let local = group.local().clone();
    let fds: Vec<_> = group.into_shards().into_iter().map(Listening::into_fd).collect();
    let shards: Vec<_> = fds.into_iter().map(|fd| Listening::adopt(fd).unwrap()).collect();
    let reuse = ListenOptions { reuse_port: true, ..ListenOptions::default() };
    let mut group = ListenerGroup::adopt(shards, &reuse).unwrap();
    assert_eq!(group.local(), &local);
    group.grow(3).unwrap();
    let clients = connect(&group, 50);
    assert_eq!(group.shards().iter().map(accept_all).sum::<usize>(), clients.len());
    assert!(ListenerGroup::adopt(Vec::new(), &reuse).is_none());
}

#[test]
fn a_prepared_group_is_reached_all_at_once() {
    for text in LOOPBACKS {
        let prepared = ListenerGroup::prepare(&endpoint(text), &ListenOptions::default(), 3).unwrap();
        let at = prepared.local().clone();
        let early: Vec<_> = (0..30)
            .map(|_| crate::connect::start(&at, &Default::default()).unwrap().into_fd())
            .inspect(|fd| assert!(!crate::connect::finished(fd).unwrap(), "not yet"))
            .collect();
        let group = prepared.publish().unwrap();
        let clients = connect(&group, 100);
        let counts: Vec<_> = group.shards().iter().map(accept_all).collect();
        assert!(counts.iter().all(|&count| count > 5), "{counts:?}");
        assert!(counts.iter().sum::<usize>() >= clients.len());
        drop(early);
    }
}

#[test]
fn a_group_that_cannot_grow_stays_as_it_was() {
    let share = ListenOptions { reuse_port: true, ..ListenOptions::default() };
    let mut group = ListenerGroup::open(&endpoint("127.0.0.1:0"), &share, 2).unwrap();
    // An option no socket can be opened with, as if the interface had gone.
    group.options.interface = Some("no-such-if".into());
    assert_eq!(group.grow(4).unwrap_err().reason, ListenReason::NoSuchInterface("no-such-if".into()));
    let clients = connect(&group, 60);
    let counts: Vec<_> = group.shards().iter().map(accept_all).collect();
    assert_eq!(counts.iter().sum::<usize>(), clients.len());
    assert!(counts.iter().all(|&count| count > 5), "{counts:?}");
}
