use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use super::*;
use crate::testing::{LOOPBACKS, wait_readable};

fn pair(text: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(text).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

#[test]
fn a_look_takes_nothing_and_sees_what_waits() {
    for text in LOOPBACKS {
        let (mut client, mut server) = pair(text);
        assert_eq!(waiting(&server), PendingInput::Nothing);
        client.write_all(b"x").unwrap();
        wait_readable(&server);
        assert_eq!((waiting(&server), waiting(&server)), (PendingInput::Data, PendingInput::Data));
        server.read_exact(&mut [0; 1]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        wait_readable(&server);
        assert_eq!(waiting(&server), PendingInput::End);
        server.write_all(b"still open this way").unwrap();
        wait_readable(&client);
        assert_eq!(waiting(&client), PendingInput::Data);
    }
    assert_eq!(waiting(&std::fs::File::open("/dev/null").unwrap()), PendingInput::Broken);
}

#[test]
fn closing_with_reset_resets() {
    for text in LOOPBACKS {
        let (mut client, server) = pair(text);
        reset_on_close(&server).unwrap();
        drop(server);
        wait_readable(&client);
        assert_eq!(waiting(&client), PendingInput::Broken);
        // The look took the error with it, as any read would have.
        assert_eq!(client.read(&mut [0; 1]).unwrap_or(0), 0);
    }
}

#[test]
fn options_are_set_and_unset() {
    for text in LOOPBACKS {
        let (client, _server) = pair(text);
        let socket = SockRef::from(&client);
        set_nodelay(&client, true).unwrap();
        set_user_timeout(&client, Some(Duration::from_millis(2500))).unwrap();
        let wish =
            Keepalive { idle: Some(Duration::from_secs(10)), interval: Some(Duration::from_millis(1)), count: Some(4) };
        set_keepalive(&client, Some(&wish)).unwrap();
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(10));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(1), "a second at least");
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 4);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_millis(2500)));
        set_nodelay(&client, false).unwrap();
        set_user_timeout(&client, None).unwrap();
        set_keepalive(&client, None).unwrap();
        assert!(!socket.tcp_nodelay().unwrap() && !socket.keepalive().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap().unwrap_or_default(), Duration::ZERO);
        assert_eq!(set_interface(&client, "no-such-if").unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}

#[test]
fn the_peer_of_a_unix_socket_is_known() {
    let (a, _b) = UnixStream::pair().unwrap();
    let found = peer(&a).unwrap();
    assert_eq!(found.pid, std::process::id() as i32);
    assert_eq!(found.uid, nix::unistd::geteuid().as_raw());
    assert_eq!(found.gid, nix::unistd::getegid().as_raw());
}

#[test]
fn a_connection_that_was_not_redirected_has_no_original_destination() {
    for text in LOOPBACKS {
        let (_client, server) = pair(text);
        let found = original_destination(&server);
        assert!(found.is_none() || found == Some(server.local_addr().unwrap()), "{found:?}");
    }
}

#[test]
fn the_kernel_measures_connections() {
    for text in LOOPBACKS {
        let (mut client, mut server) = pair(text);
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0; 1]).unwrap();
        let info = tcp_info(&client).unwrap();
        assert!(info.rtt > 0 && info.rtt < 1_000_000, "{info:?}");
        assert_eq!((info.lost, info.retransmits), (0, 0), "{info:?}");
        assert!(info.reordering > 0, "{info:?}");
    }
    let (one, _other) = UnixStream::pair().unwrap();
    assert!(tcp_info(&one).is_err());
}

#[test]
fn addresses_of_the_system_are_told_from_others() {
    for local in ["127.0.0.1", "127.1.2.3", "::1"] {
        assert!(is_local(local.parse().unwrap()), "{local}");
    }
    for other in ["192.0.2.1", "2001:db8::1"] {
        assert!(!is_local(other.parse().unwrap()), "{other}");
    }
}

#[test]
fn the_tos_byte_of_either_family() {
    let (_client, accepted) = pair("127.0.0.1:0");
    set_tos(&accepted, 0x28).unwrap();
    assert_eq!(SockRef::from(&accepted).tos_v4().unwrap(), 0x28);
    if let Ok(listening) = TcpListener::bind("[::1]:0") {
        let client = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
        set_tos(&client, 0x28).unwrap();
        assert_eq!(SockRef::from(&client).tclass_v6().unwrap(), 0x28);
    } else {
        eprintln!("SKIPPED: no IPv6");
    }
}

#[test]
fn a_forgotten_connection_ends_without_a_packet_or_by_a_reset() {
    let result = crate::netns::in_new(|| {
        std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
        let (mut client, accepted) = pair("127.0.0.1:0");
        client.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        forget(&accepted, None);
        drop(accepted);
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock, "no end was seen");
    });
    if let Err(error) = result {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
    let (mut client, accepted) = pair("127.0.0.1:0");
    forget(&accepted, Some(3));
    assert_eq!(SockRef::from(&accepted).ttl_v4().unwrap(), 3);
    drop(accepted);
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}
