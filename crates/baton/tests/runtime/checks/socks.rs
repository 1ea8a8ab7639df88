//! Checks by way of a SOCKS4 proxy. The scripted server is the proxy; where it is to connect to is the same in every run.

use super::servers::Act::{Close, Hold, Read, Send};
use super::{Case, case, compare};

const GRANTED: &[u8] = b"\0\x5a\0\0\0\0\0\0";

#[test]
fn checks_by_way_of_socks4() {
    let via = "addr 192.0.2.7 port 81 socks4 127.0.0.1:@P check-via-socks4";
    compare(&[
        Case { words: via, ..case("granted", &[], &[Read, Send(GRANTED), Hold]) },
        Case { words: via, ..case("silent", &[], &[Read, Hold]) },
        Case {
            words: via,
            ..case("http", &["option httpchk"], &[Read, Send(GRANTED), Read, Send(b"HTTP/1.0 200 OK\r\n\r\n"), Close])
        },
        Case {
            words: "addr 192.0.2.7 port 81 socks4 127.0.0.1:@P",
            ..case(
                "step",
                &["option tcp-check", "tcp-check connect via-socks4", "tcp-check expect string hello"],
                &[Read, Send(GRANTED), Send(b"hello"), Hold],
            )
        },
        Case { words: "check-via-socks4", ..case("no_proxy", &["option tcp-check"], &[Hold]) },
        Case { words: "socks4 127.0.0.1:1", ..case("traffic_alone", &["option tcp-check"], &[Hold]) },
    ]);
}
