//! The static table (RFC 7541 appendix A).

/// Names and values by index; the first has index 1.
pub(super) static STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Slots of the table by the hash of the name: a power of two above twice the number of names.
const SLOTS: usize = 256;

/// The first index of each name, found by [`slot`]. 0: none.
static BY_NAME: [u8; SLOTS] = {
    let mut slots = [0u8; SLOTS];
    let mut index = STATIC.len();
    while index > 0 {
        let name = STATIC[index - 1].0.as_bytes();
        let mut at = slot(name);
        // A name that is there already, with a higher index, gives way to its first one.
        while slots[at] != 0 && !is_equal(STATIC[slots[at] as usize - 1].0.as_bytes(), name) {
            at = (at + 1) % SLOTS;
        }
        slots[at] = index as u8;
        index -= 1;
    }
    slots
};

/// Length, and the bytes that tell names of a length apart.
const fn slot(name: &[u8]) -> usize {
    let len = name.len();
    if len == 0 {
        return 0;
    }
    (len * 31 + name[len - 1] as usize * 7 + name[len / 2] as usize * 3 + name[0] as usize) % SLOTS
}

const fn is_equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The first index with that name; 0: there is none.
#[inline]
pub(super) fn index_of_name(name: &[u8]) -> usize {
    let mut at = slot(name);
    loop {
        match BY_NAME[at] {
            0 => return 0,
            index if STATIC[usize::from(index) - 1].0.as_bytes() == name => return usize::from(index),
            _ => at = (at + 1) % SLOTS,
        }
    }
}

/// The index with that value among those that have the name of `first`; 0: there is none.
#[inline]
pub(super) fn index_of_value(first: usize, value: &[u8]) -> usize {
    // Only these have values, and all but one name have one.
    if !matches!(first, 2 | 4 | 6 | 8 | 16) {
        return 0;
    }
    let name = STATIC[first - 1].0;
    let same = STATIC[first - 1..].iter().take_while(|(other, _)| *other == name);
    same.enumerate().find(|(_, (_, known))| known.as_bytes() == value).map_or(0, |(at, _)| first + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_by_its_name_and_value() {
        for (at, (name, value)) in STATIC.iter().enumerate() {
            let first = index_of_name(name.as_bytes());
            assert_eq!(STATIC[first - 1].0, *name);
            assert!(first <= at + 1);
            if !value.is_empty() {
                assert_eq!(index_of_value(first, value.as_bytes()), at + 1, "{name}: {value}");
            }
            assert_eq!(index_of_value(first, b"other"), 0);
            assert_eq!(index_of_name(format!("{name}x").as_bytes()), 0);
        }
        assert_eq!(index_of_name(b""), 0);
        assert_eq!(index_of_name(b"x-request-id"), 0);
    }
}
