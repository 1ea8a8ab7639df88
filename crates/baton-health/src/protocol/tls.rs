//! `option ssl-hello-chk`: a hello of SSL 3.0 (RFC 6101, 5.6.1.2). A server that speaks any version responds, with a hello or an alert.

/// Suites of SSL 3.0 and of the early TLS, by number.
const SUITES: [std::ops::RangeInclusive<u16>; 2] = [0x01..=0x1b, 0x2f..=0x3a];
const SSL_3: [u8; 2] = [3, 0];

pub(super) fn client_hello() -> Vec<u8> {
    let suites: Vec<u8> = SUITES.into_iter().flatten().flat_map(u16::to_be_bytes).collect();
    let mut body = SSL_3.to_vec();
    // What is random in a hello that is meant: nothing depends on it here.
    body.extend_from_slice(b"A health check: no handshake now");
    // No session.
    body.push(0);
    body.extend_from_slice(&(suites.len() as u16).to_be_bytes());
    body.extend_from_slice(&suites);
    // No compression.
    body.extend_from_slice(&[1, 0]);
    let handshake = [&[1], &(body.len() as u32).to_be_bytes()[1..], &body].concat();
    [&[22], &SSL_3[..], &(handshake.len() as u16).to_be_bytes(), &handshake].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_what_follows() {
        let hello = client_hello();
        assert_eq!(usize::from(u16::from_be_bytes([hello[3], hello[4]])), hello.len() - 5);
        assert_eq!(usize::from(u16::from_be_bytes([hello[7], hello[8]])), hello.len() - 9);
        // Versions, 32 random bytes, an empty session, and the suites.
        assert_eq!((hello[9..11].to_vec(), hello[43], hello[45]), (vec![3, 0], 0, 78));
    }
}
