use std::net::{TcpListener, TcpStream};

use super::*;

#[test]
fn lines_of_proc_are_read() {
    fn check(line: &str, expect: Option<(&str, &str)>) {
        let expect = expect.map(|(local, client)| (local.parse().unwrap(), client.parse().unwrap()));
        assert_eq!(half_open_line(line), expect, "{line}");
    }
    let four = Some(("127.0.0.1:8080", "127.0.0.2:40961"));
    check("  0: 0100007F:1F90 0200007F:A001 03 00000000:00000000", four);
    check("  0: 0100007F:1F90 0200007F:A001 01 00000000:00000000", None);
    check(
        "  0: 00000000000000000000000001000000:0050 00000000000000000000000001000000:0051 03 x",
        Some(("[::1]:80", "[::1]:81")),
    );
    check("  sl  local_address rem_address   st tx_queue rx_queue", None);
    check("  0: 01:50 0:0 03", None);
    check("  0: é00007F:1F90 0:0 03", None);
    check("", None);
}

#[test]
fn only_the_address_asked_for_matches() {
    fn check(listened: &str, found: &str, expect: bool) {
        assert_eq!(matches(listened.parse().unwrap(), found.parse().unwrap()), expect, "{listened} {found}");
    }
    check("127.0.0.1:80", "127.0.0.1:80", true);
    check("127.0.0.1:80", "127.0.0.1:81", false);
    check("127.0.0.2:80", "127.0.0.1:80", false);
    check("0.0.0.0:80", "127.0.0.1:80", true);
    check("[::]:80", "[::ffff:127.0.0.1]:80", true);
    check("[::ffff:127.0.0.1]:80", "127.0.0.1:80", true);
    check("[::1]:80", "127.0.0.1:80", false);
}

#[test]
fn short_messages_are_no_panic() {
    for length in 0..40 {
        assert_eq!(diag_ends(&vec![2; length]), None);
    }
}

/// A handshake that cannot end: the client throws the SYN-ACK away.
fn half_open_client(to: SocketAddr) -> socket2::Socket {
    let client = socket2::Socket::new(socket2::Domain::for_address(to), socket2::Type::STREAM, None).unwrap();
    let ret = (libc::BPF_RET | libc::BPF_K) as u16;
    client.attach_filter(&[socket2::SockFilter::new(ret, 0, 0, 0)]).unwrap();
    client.set_nonblocking(true).unwrap();
    let _ = client.connect(&to.into());
    client
}

#[test]
fn both_sources_count_handshakes_and_nothing_else() {
    // In a namespace of its own: `/proc` is read in pieces, and other tests' connections come and go.
    match crate::netns::in_new(|| ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"].map(count_at)) {
        Ok(_) => {}
        Err(error) => eprintln!("SKIPPED: no right to a network namespace ({error})"),
    }
}

fn count_at(text: &str) {
    let listener = TcpListener::bind(text).unwrap();
    socket2::SockRef::from(&listener).listen(1000).unwrap();
    let at = listener.local_addr().unwrap();
    let loopback = if at.is_ipv4() { "127.0.0.1" } else { "::1" };
    let to = SocketAddr::new(loopback.parse().unwrap(), at.port());
    let _whole = TcpStream::connect(to).unwrap();
    assert_eq!((diag(at).unwrap().len(), proc_net(at).unwrap().len()), (0, 0), "{text}: a complete one waits");
    let mut clients: Vec<_> = (0..3).map(|_| half_open_client(to)).collect();
    if text == "[::]:0" {
        clients.push(half_open_client(SocketAddr::new("127.0.0.1".parse().unwrap(), at.port())));
    }
    let mut own: Vec<_> = clients.iter().map(|client| client.local_addr().unwrap().as_socket().unwrap()).collect();
    own.sort();
    for source in [diag, proc_net] {
        let mut found = source(at).unwrap();
        found.sort();
        assert_eq!(found, own, "{text}");
    }
    // More than one message of a dump holds.
    clients.extend((0..600).map(|_| half_open_client(to)));
    assert_eq!(diag(at).unwrap().len(), clients.len(), "{text}");
}

#[test]
fn the_kernel_is_asked_once_for_many_addresses() {
    let look = || {
        let open = |text: &str| {
            crate::listen::open(&crate::Endpoint::Inet(text.parse().unwrap()), &Default::default()).unwrap()
        };
        let listening: Vec<Listening> =
            ["127.0.0.1:0", "127.0.0.2:0", "[::1]:0", "0.0.0.0:0", "[::]:0"].map(open).into();
        let address = |at: usize| listening[at].local().inet().unwrap();
        let at_port = |text: &str, at: usize| SocketAddr::new(text.parse().unwrap(), address(at).port());
        let _clients =
            [address(1), address(2), address(2), at_port("127.0.0.9", 3), at_port("::1", 4), at_port("127.0.0.1", 4)]
                .map(half_open_client);
        let mut handshakes = Handshakes::default();
        let found: Vec<usize> = listening.iter().map(|listening| handshakes.at(listening).unwrap()).collect();
        assert_eq!(found, [0, 1, 2, 1, 2]);
        let each: Vec<usize> = listening.iter().map(|listening| count(listening).unwrap()).collect();
        assert_eq!(found, each);
        assert_eq!(handshakes.asked(), 1);
    };
    match crate::netns::in_new(look) {
        Ok(()) => {}
        Err(error) => eprintln!("SKIPPED: no right to a network namespace ({error})"),
    }
}
