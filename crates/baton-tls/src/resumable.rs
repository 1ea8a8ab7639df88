//! Whether a session may still be resumed, by the certificates that the client showed when it began: a client that resumes does
//! not show them again, and gets a new ticket each time, so that one could go on with an expired certificate for ever.

use crate::certificate::X509;

/// Whether the certificates in a session hold at this time (seconds since 1970). What cannot be read does not.
///
/// `session` is as rustls 0.23 encodes one: name, version, cipher suite, secret, a flag, then the certificates.
pub(crate) fn holds(session: &[u8], now: u64) -> bool {
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    certificates(session).is_some_and(|mut rest| {
        while !rest.is_empty() {
            let Some((length, behind)) = number::<3>(rest) else { return false };
            let Some((der, behind)) = behind.split_at_checked(length) else { return false };
            if X509::read(der).is_none_or(|read| now > read.not_after) {
                return false;
            }
            rest = behind;
        }
        true
    })
}

/// The client's certificates, each with its length before it; empty where it showed none.
fn certificates(session: &[u8]) -> Option<&[u8]> {
    let (flag, rest) = session.split_first()?;
    let rest = match flag {
        0 => rest,
        _ => skip::<1>(rest)?,
    };
    // Version and cipher suite have two bytes each.
    let rest = skip::<1>(rest.get(4..)?)?;
    match rest.get(1..)?.split_first()? {
        (0, _) => Some(&[]),
        (_, rest) => {
            let (length, rest) = number::<3>(rest)?;
            rest.get(..length)
        }
    }
}

/// What is behind bytes whose length stands before them.
fn skip<const N: usize>(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = number::<N>(bytes)?;
    rest.get(length..)
}

fn number<const N: usize>(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (digits, rest) = bytes.split_first_chunk::<N>()?;
    Some((digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A session in which a client showed these certificates.
    pub(crate) fn session(name: Option<&str>, certificates: &[&[u8]]) -> Vec<u8> {
        let with_length = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[1..], bytes].concat();
        let mut out = vec![u8::from(name.is_some())];
        if let Some(name) = name {
            out.push(name.len() as u8);
            out.extend(name.as_bytes());
        }
        out.extend([3, 4, 0x13, 2, 48]);
        out.extend([7; 48]);
        out.push(0);
        out.push(u8::from(!certificates.is_empty()));
        if !certificates.is_empty() {
            let all: Vec<u8> = certificates.iter().flat_map(|der| with_length(der)).collect();
            out.extend(with_length(&all));
        }
        out.extend([0, 0, 0]);
        out.extend([0; 12]);
        out
    }

    #[test]
    fn sessions_end_with_the_first_certificate_that_does() {
        let key = rcgen::KeyPair::generate().unwrap();
        let until = |year| {
            let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            params.self_signed(&key).unwrap().der().to_vec()
        };
        let (early, late) = (until(2001), until(2002));
        let end = 978_307_200;
        for certificates in [&[&early[..], &late][..], &[&late, &early]] {
            let session = session(Some("a.example"), certificates);
            assert!(holds(&session, end) && !holds(&session, end + 1));
            for cut in 0..session.len() - 15 {
                assert!(!holds(&session[..cut], end), "{cut}");
            }
        }
        assert!(holds(&session(None, &[]), u64::MAX) && !holds(&session(None, &[b"no certificate"]), 0));
    }
}
