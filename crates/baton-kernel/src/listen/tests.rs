use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::retire::accept_queue;
use crate::testing::{LOOPBACKS, address, endpoint, listener, wait_readable};

/// The reason for which `endpoint` cannot be listened on.
fn reason(endpoint: &Endpoint, options: &ListenOptions) -> ListenReason {
    open(endpoint, options).expect_err("must fail").reason
}

fn options() -> ListenOptions {
    ListenOptions::default()
}

fn is_cloexec(fd: &impl AsFd) -> bool {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    FdFlag::from_bits_truncate(fcntl(fd.as_fd(), FcntlArg::F_GETFD).unwrap()).contains(FdFlag::FD_CLOEXEC)
}

#[test]
fn inet_listeners_accept_and_their_connections_inherit_the_options() {
    for text in LOOPBACKS {
        let keepalive = Keepalive { idle: Some(Duration::from_secs(41)), interval: None, count: Some(7) };
        let wish = ListenOptions {
            backlog: 17,
            keepalive: Some(keepalive),
            user_timeout: Some(Duration::from_secs(9)),
            mss: Some(900),
            tfo: Some(5),
            ..options()
        };
        let listening = open(&endpoint(text), &wish).unwrap();
        assert_eq!(listening.endpoint(), &endpoint(text));
        assert_ne!(address(&listening).port(), 0);
        assert_eq!(accept_queue(&listening).unwrap().limit, 17);
        assert!(SockRef::from(&listening).nonblocking().unwrap() && is_cloexec(&listening));
        assert!(listening.accept().unwrap().is_none());

        let client = TcpStream::connect(address(&listening)).unwrap();
        let (accepted, from) = listening.accept().unwrap().unwrap();
        assert_eq!(from, Some(client.local_addr().unwrap()));
        let socket = SockRef::from(&accepted);
        assert!(socket.nonblocking().unwrap() && is_cloexec(&accepted));
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(41));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 7);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(9)));
        assert!(socket.tcp_mss().unwrap() <= 900);
    }
}

#[test]
fn defer_accept_waits_for_data() {
    let wish = ListenOptions { defer_accept: Some(Duration::from_secs(60)), ..options() };
    let listening = open(&endpoint("127.0.0.1:0"), &wish).unwrap();
    let mut client = TcpStream::connect(address(&listening)).unwrap();
    assert!(listening.accept().unwrap().is_none(), "no data yet");
    client.write_all(b"x").unwrap();
    wait_readable(&listening);
    assert!(listening.accept().unwrap().is_some());
}

#[test]
fn v6only_decides_who_may_share_a_port() {
    let only = open(&endpoint("[::]:0"), &ListenOptions { v6only: Some(true), ..options() }).unwrap();
    assert!(TcpStream::connect(("127.0.0.1", address(&only).port())).is_err());
    let both = open(&endpoint("[::]:0"), &ListenOptions { v6only: Some(false), ..options() }).unwrap();
    TcpStream::connect(("127.0.0.1", address(&both).port())).unwrap();
}

#[test]
fn a_taken_address_is_an_error_that_says_so() {
    let first = listener("127.0.0.1:0");
    let taken = Endpoint::Inet(address(&first));
    for wish in [options(), ListenOptions { reuse_port: true, ..options() }] {
        assert_eq!(reason(&taken, &wish), ListenReason::InUse);
    }
    let text = open(&taken, &options()).unwrap_err().to_string();
    assert!(text.starts_with(&format!("cannot listen on {taken}: address already in use by another socket (")));
    assert!(text.contains("ss -ltnp"));
    drop(first);
    open(&taken, &options()).expect("free again");
}

#[test]
fn exclusive_refuses_even_a_sharing_listener_and_lets_our_group_grow() {
    let share = ListenOptions { reuse_port: true, ..options() };
    let alone = ListenOptions { exclusive: true, ..share.clone() };
    let first = open(&endpoint("127.0.0.1:0"), &share).unwrap();
    let taken = Endpoint::Inet(address(&first));
    let second = open(&taken, &share).expect("shared silently");
    assert_eq!(reason(&taken, &alone), ListenReason::InUse);
    drop((first, second));
    let first = open(&taken, &alone).unwrap();
    let second = open(&taken, &share).expect("joins the first one's group");
    let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address(&first)).unwrap()).collect();
    let count = |listening: &Listening| std::iter::from_fn(|| listening.accept().unwrap()).count();
    let (one, two) = (count(&first), count(&second));
    assert_eq!(one + two, clients.len());
    assert!(one > 0 && two > 0, "{one} and {two}: both shards are served");
}

#[test]
fn addresses_and_interfaces_that_do_not_exist_are_named() {
    assert_eq!(reason(&endpoint("192.0.2.7:0"), &options()), ListenReason::NoSuchAddress);
    let nowhere = ListenOptions { interface: Some("no-such-if".into()), ..options() };
    assert_eq!(reason(&endpoint("127.0.0.1:0"), &nowhere), ListenReason::NoSuchInterface("no-such-if".into()));
}

#[test]
fn transparent_and_interface_work_with_the_right_to_them() {
    let bound = crate::netns::in_new(|| {
        for text in ["192.0.2.7:80", "[2001:db8::7]:80"] {
            open(&endpoint(text), &ListenOptions { transparent: true, ..options() }).unwrap();
        }
        let lo = ListenOptions { interface: Some("lo".into()), ..options() };
        let listening = open(&endpoint("0.0.0.0:0"), &lo).unwrap();
        assert_eq!(SockRef::from(&listening).device().unwrap(), Some(b"lo".to_vec()));
        TcpStream::connect(("127.0.0.1", address(&listening).port())).unwrap();
    });
    if let Err(error) = bound {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

#[test]
fn every_failure_of_bind_has_its_reason_and_remedy() {
    fn check(text: &str, errno: i32, expect: &str) {
        let error = ListenError::bind(&endpoint(text), io::Error::from_raw_os_error(errno));
        assert!(error.to_string().contains(expect), "{error}");
    }
    check("0.0.0.0:80", libc::EACCES, "port 80 is privileged (Permission denied (os error 13)); start as root or");
    check("0.0.0.0:80", libc::EADDRINUSE, "already in use");
    check("10.0.0.1:80", libc::EADDRNOTAVAIL, "no interface has this address");
    check("10.0.0.1:80", libc::ENOMEM, "out of descriptors or memory");
    check("10.0.0.1:80", libc::EINVAL, "bind failed (Invalid argument");
}

#[test]
fn a_privileged_port_needs_a_right_we_can_lose() {
    let answer = crate::netns::in_new(|| {
        // Rights belong to threads for the kernel: this changes those of this one only, which ends with the closure.
        let nobody = rustix::thread::Uid::from_raw(65534);
        let changed = rustix::thread::set_thread_res_uid(nobody, nobody, nobody);
        changed.is_ok().then(|| reason(&endpoint("127.0.0.1:80"), &options()))
    });
    match answer {
        Ok(Some(found)) => assert_eq!(found, ListenReason::PrivilegedPort(80)),
        Ok(None) | Err(_) => eprintln!("SKIPPED: not root"),
    }
}

#[test]
fn a_unix_socket_replaces_a_stale_or_living_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sock");
    let at = Endpoint::Unix(path.clone());
    drop(UnixListener::bind(&path).unwrap()); // stale: a file without a listener
    let root = nix::unistd::Uid::effective().is_root();
    let (uid, gid) = if root { (1, 2) } else { (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw()) };
    if !root {
        eprintln!("SKIPPED: giving the file to another user, for we are not root");
    }
    let wish = ListenOptions { mode: Some(0o620), uid: Some(uid), gid: Some(gid), ..options() };
    let first = open(&at, &wish).unwrap();
    let found = std::fs::metadata(&path).unwrap();
    assert_eq!((found.permissions().mode() & 0o777, found.uid(), found.gid()), (0o620, uid, gid));
    let early = UnixStream::connect(&path).unwrap();
    let second = open(&at, &options()).unwrap();
    let late = UnixStream::connect(&path).unwrap();
    assert!(first.accept().unwrap().is_some() && first.accept().unwrap().is_none());
    assert!(second.accept().unwrap().is_some() && second.accept().unwrap().is_none());
    assert!(!first.file().unwrap().is_current() && second.file().unwrap().is_current());
    assert!(!first.file().unwrap().remove().unwrap(), "the file is the second one's now");
    second.apply(&ListenOptions { mode: Some(0o600), ..options() }).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
    assert_eq!(Endpoint::local_of(&second).unwrap(), Some(at), "the temporary name is undone");
    assert!(second.file().unwrap().remove().unwrap() && !path.exists());
    drop((early, late));
}

#[test]
fn connecting_to_a_path_never_fails_while_it_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sock");
    let at = Endpoint::Unix(path.clone());
    let mut all = vec![open(&at, &options()).unwrap()];
    let done = AtomicBool::new(false);
    let connected = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut connected = 0;
            while !done.load(Ordering::Relaxed) && connected < 4000 {
                UnixStream::connect(&path).expect("at every instant somebody listens");
                connected += 1;
            }
            connected
        });
        for _ in 0..100 {
            all.push(open(&at, &options()).unwrap());
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
        client.join().unwrap()
    });
    let accepted: usize = all.iter().map(|one| std::iter::from_fn(|| one.accept().unwrap()).count()).sum();
    assert_eq!(accepted, connected);
}

#[test]
fn unix_failures_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert_eq!(reason(&Endpoint::Unix(file.clone()), &options()), ListenReason::NotASocketFile);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    assert_eq!(reason(&Endpoint::Unix(folder.path().join("no/x")), &options()), ListenReason::NoDirectory);
    assert_eq!(reason(&Endpoint::Unix(folder.path().join("x".repeat(100))), &options()), ListenReason::NameTooLong);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn abstract_names_listen_and_connect() {
    let name = Endpoint::Abstract(format!("baton-test-{}", std::process::id()).into_bytes());
    let listening = open(&name, &options()).unwrap();
    assert_eq!(Endpoint::local_of(&listening).unwrap(), Some(name.clone()));
    assert_eq!(reason(&name, &options()), ListenReason::InUse);
    crate::connect::start(&name, &Default::default()).unwrap();
    assert!(listening.accept().unwrap().is_some());
    assert_eq!(reason(&Endpoint::Abstract(vec![b'x'; 108]), &options()), ListenReason::NameTooLong);
}

#[test]
fn inherited_descriptors_are_checked() {
    fn check(fd: &impl AsFd, expect: ListenReason) {
        let number = pass_on(fd).as_fd().as_raw_fd();
        assert_eq!(reason(&Endpoint::Fd(number), &options()), expect);
    }
    assert_eq!(reason(&Endpoint::Fd(-1), &options()), ListenReason::BadDescriptor);
    assert_eq!(reason(&Endpoint::Fd(1_000_000), &options()), ListenReason::BadDescriptor);
    check(&std::fs::File::open("/dev/null").unwrap(), ListenReason::NotASocket);
    check(&UdpSocket::bind("127.0.0.1:0").unwrap(), ListenReason::NotAStream);
    check(&Socket::new(socket2::Domain::IPV4, Type::STREAM, None).unwrap(), ListenReason::NotListening);
    let std_listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(std_listener.local_addr().unwrap()).unwrap();
    check(&connected, ListenReason::NotListening);
    let own = Endpoint::Fd(std_listener.as_raw_fd());
    assert_eq!(reason(&own, &options()), ListenReason::BadDescriptor, "nobody passed it on");
}

/// As if whoever started us had passed it on.
fn pass_on<F: AsFd>(fd: &F) -> &F {
    nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    fd
}

#[test]
fn an_inherited_listener_serves_and_its_number_stays_open() {
    let given = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = Endpoint::Fd(pass_on(&given).as_raw_fd());
    let first = open(&at, &options()).unwrap();
    assert_eq!(first.endpoint(), &at);
    assert_eq!(first.local(), &Endpoint::Inet(given.local_addr().unwrap()));
    drop(first);
    let second = open(&at, &options()).unwrap();
    let mut client = TcpStream::connect(given.local_addr().unwrap()).unwrap();
    let (accepted, _) = second.accept().unwrap().unwrap();
    TcpStream::from(accepted).write_all(b"hi").unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hi");

    let bound = Socket::new(socket2::Domain::IPV4, Type::STREAM, None).unwrap();
    bound.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    let listening = open(&Endpoint::Fd(pass_on(&bound).as_raw_fd()), &options()).expect("bound only: made to listen");
    TcpStream::connect(address(&listening)).unwrap();
}

#[test]
fn living_sockets_change_without_losing_their_queue() {
    let wish = ListenOptions { backlog: 50, nodelay: true, ..options() };
    let listening = open(&endpoint("127.0.0.1:0"), &wish).unwrap();
    let clients: Vec<_> = (0..20).map(|_| TcpStream::connect(address(&listening)).unwrap()).collect();
    let new = ListenOptions { backlog: 5, nodelay: false, keepalive: Some(Keepalive::default()), ..wish.clone() };
    listening.apply(&new).unwrap();
    let queue = accept_queue(&listening).unwrap();
    assert_eq!((queue.waiting, queue.limit), (20, 5), "shorter than what waits in it");
    let accepted: Vec<_> = std::iter::from_fn(|| listening.accept().unwrap()).collect();
    assert_eq!(accepted.len(), clients.len());
    let _late = TcpStream::connect(address(&listening)).unwrap();
    let (late, _) = listening.accept().unwrap().unwrap();
    assert!(!SockRef::from(&late).tcp_nodelay().unwrap() && SockRef::from(&late).keepalive().unwrap());
}

/// Starts a connection and says whether it is established; on loopback that is known at once.
fn reaches(at: &Endpoint) -> bool {
    match crate::connect::start(at, &Default::default()) {
        Ok(started) => crate::connect::finished(&started.into_fd()).unwrap_or(false),
        Err(_) => false,
    }
}

#[test]
fn a_prepared_socket_is_not_reached_before_it_is_published() {
    let folder = tempfile::tempdir().unwrap();
    let path = Endpoint::Unix(folder.path().join("x.sock"));
    let name = Endpoint::Abstract(format!("baton-prepare-{}", std::process::id()).into_bytes());
    for at in [endpoint("127.0.0.1:0"), endpoint("[::1]:0"), path, name] {
        let prepared = prepare(&at, &options()).unwrap();
        let local = prepared.listening().local().clone();
        assert!(!reaches(&local), "{at}: not yet");
        assert!(prepared.listening().accept().map_or(true, |none| none.is_none()));
        let listening = prepared.publish().unwrap();
        assert!(reaches(&local), "{at}: now");
        let (accepted, _) = listening.accept().unwrap().expect("and served");
        assert!(!SynFilter::is_attached(&listening).unwrap() && !SynFilter::is_attached(&accepted).unwrap());
    }
}

#[test]
fn a_prepared_socket_that_is_given_up_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = Endpoint::Unix(folder.path().join("x.sock"));
    let living = open(&path, &options()).unwrap();
    drop(prepare(&path, &options()).unwrap());
    assert!(reaches(&path) && living.accept().unwrap().is_some(), "the living server keeps its path");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);

    let prepared = prepare(&endpoint("127.0.0.1:0"), &options()).unwrap();
    let local = prepared.listening().local().clone();
    let waiting = crate::connect::start(&local, &Default::default()).unwrap().into_fd();
    drop(prepared);
    assert!(!crate::connect::finished(&waiting).unwrap(), "not reset: it may still reach somebody else");
    open(&local, &options()).expect("the address is free");
}
