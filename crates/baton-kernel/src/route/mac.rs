//! Hardware addresses.

use std::fmt;
use std::str::FromStr;

/// A hardware address of Ethernet: six bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Everybody.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Whether it is the address of several: the lowest bit of the first byte (IEEE 802).
    pub fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Whether it is none: all bytes are 0, as the loopback's.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 6]
    }

    /// From an attribute of six bytes; interfaces of other kinds have longer, shorter or no addresses.
    pub(super) fn read(bytes: &[u8]) -> Option<Mac> {
        bytes.try_into().ok().map(Mac)
    }
}

impl fmt::Display for Mac {
    /// As `ip` writes it: `02:fc:00:00:00:01`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Mac, String> {
        let wrong = || format!("'{text}' is not a MAC address, such as 02:fc:00:00:00:01");
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| matches!(part.len(), 1 | 2)).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Mac(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let mac: Mac = "02:FC:0:00:00:1".parse().unwrap();
        assert_eq!(mac.to_string(), "02:fc:00:00:00:01");
        assert!(!mac.is_group() && !mac.is_zero() && Mac::BROADCAST.is_group());
        for wrong in ["", "02", "02:fc:00:00:00", "02:fc:00:00:00:01:02", "02:fc:00:00:00:xx", "002:fc:00:00:00:01"] {
            assert!(wrong.parse::<Mac>().unwrap_err().contains("MAC address"), "{wrong}");
        }
    }
}
