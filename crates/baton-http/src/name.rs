//! The field names we know by number, so that looking for `Host` costs one comparison of a byte.

macro_rules! names {
    ($($id:ident = $text:literal,)*) => {
        /// A known field name. [`Name::Other`] stands for all names not listed.
        #[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
        #[repr(u8)]
        pub enum Name {
            $(#[doc = concat!("`", $text, "`")] $id,)*
            /// Any other name.
            Other,
        }

        impl Name {
            /// All known names (without [`Name::Other`]).
            pub const ALL: &'static [Name] = &[$(Name::$id),*];

            /// The name in lower case; empty for [`Name::Other`].
            pub const fn text(self) -> &'static str {
                match self {
                    $(Name::$id => $text,)*
                    Name::Other => "",
                }
            }
        }
    };
}

names! {
    Accept = "accept",
    AcceptEncoding = "accept-encoding",
    AcceptLanguage = "accept-language",
    Age = "age",
    Authorization = "authorization",
    CacheControl = "cache-control",
    Connection = "connection",
    ContentEncoding = "content-encoding",
    ContentLength = "content-length",
    ContentType = "content-type",
    Cookie = "cookie",
    Date = "date",
    Etag = "etag",
    Expect = "expect",
    Expires = "expires",
    Forwarded = "forwarded",
    Host = "host",
    IfModifiedSince = "if-modified-since",
    IfNoneMatch = "if-none-match",
    KeepAlive = "keep-alive",
    LastModified = "last-modified",
    Location = "location",
    Origin = "origin",
    Pragma = "pragma",
    ProxyAuthorization = "proxy-authorization",
    ProxyConnection = "proxy-connection",
    Range = "range",
    Referer = "referer",
    SecWebsocketAccept = "sec-websocket-accept",
    SecWebsocketKey = "sec-websocket-key",
    Server = "server",
    SetCookie = "set-cookie",
    Te = "te",
    Trailer = "trailer",
    TransferEncoding = "transfer-encoding",
    Upgrade = "upgrade",
    UserAgent = "user-agent",
    Vary = "vary",
    Via = "via",
    XForwardedFor = "x-forwarded-for",
    XForwardedHost = "x-forwarded-host",
    XForwardedProto = "x-forwarded-proto",
    XOriginalTo = "x-original-to",
    XRequestId = "x-request-id",
}

impl Name {
    /// The number of the field name `name`, compared without regard to case.
    #[inline]
    pub fn of(name: &[u8]) -> Name {
        use Name::*;
        let Some(&first) = name.first() else { return Other };
        // Length and first letter leave one candidate, but for two of fifteen bytes that the last letter tells apart.
        let known = match (name.len(), first | 0x20) {
            (2, b't') => Te,
            (3, b'a') => Age,
            (3, b'v') => Via,
            (4, b'h') => Host,
            (4, b'd') => Date,
            (4, b'e') => Etag,
            (4, b'v') => Vary,
            (5, b'r') => Range,
            (6, b'a') => Accept,
            (6, b'c') => Cookie,
            (6, b's') => Server,
            (6, b'e') => Expect,
            (6, b'o') => Origin,
            (6, b'p') => Pragma,
            (7, b'u') => Upgrade,
            (7, b'e') => Expires,
            (7, b'r') => Referer,
            (7, b't') => Trailer,
            (8, b'l') => Location,
            (9, b'f') => Forwarded,
            (10, b'c') => Connection,
            (10, b'u') => UserAgent,
            (10, b'k') => KeepAlive,
            (10, b's') => SetCookie,
            (12, b'c') => ContentType,
            (12, b'x') => XRequestId,
            (13, b'c') => CacheControl,
            (13, b'a') => Authorization,
            (13, b'i') => IfNoneMatch,
            (13, b'l') => LastModified,
            (13, b'x') => XOriginalTo,
            (14, b'c') => ContentLength,
            (15, b'a') if name[14] | 0x20 == b'g' => AcceptEncoding,
            (15, b'a') => AcceptLanguage,
            (15, b'x') => XForwardedFor,
            (16, b'c') => ContentEncoding,
            (16, b'p') => ProxyConnection,
            (16, b'x') => XForwardedHost,
            (17, b't') => TransferEncoding,
            (17, b'i') => IfModifiedSince,
            (17, b'x') => XForwardedProto,
            (17, b's') => SecWebsocketKey,
            (19, b'p') => ProxyAuthorization,
            (20, b's') => SecWebsocketAccept,
            _ => return Other,
        };
        if is_same(known.text().as_bytes(), name) { known } else { Other }
    }

    /// Bytes of the longest known name.
    pub(crate) const TEXT_MAX: usize = 20;

    /// This name's bit in a set of names.
    #[inline]
    pub(crate) const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// Whether `name` is `text` in any case; both are equally long, and `text` has letters in lower case and hyphens only. `name`
/// may hold any bytes: only where `text` has a letter may bit 5 differ, so that no CR passes for a hyphen. Long names are
/// compared by words, of which the last one overlaps the one before.
#[inline]
pub(crate) fn is_same(text: &[u8], name: &[u8]) -> bool {
    const CASE: u64 = 0x2020_2020_2020_2020;
    debug_assert_eq!(text.len(), name.len());
    let (Some(text_end), Some(name_end)) = (text.last_chunk::<8>(), name.last_chunk::<8>()) else {
        return text.eq_ignore_ascii_case(name);
    };
    // Letters have bit 6, a hyphen has not: shifted by one it says where the case may differ.
    let is_word = |text: &[u8; 8], name: &[u8; 8]| {
        let (text, name) = (u64::from_ne_bytes(*text), u64::from_ne_bytes(*name));
        (text ^ name) & !((text >> 1) & CASE) == 0
    };
    let heads = text.as_chunks::<8>().0.iter().zip(name.as_chunks::<8>().0);
    is_word(text_end, name_end) && heads.into_iter().all(|(text, name)| is_word(text, name))
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn every_known_name_is_found_in_any_case() {
        for &name in Name::ALL {
            assert_eq!(Name::of(name.text().as_bytes()), name);
            assert_eq!(Name::of(name.text().to_ascii_uppercase().as_bytes()), name);
            assert_eq!(Name::of(format!("{}x", name.text()).as_bytes()), Name::Other);
            assert!(name.text().len() <= Name::TEXT_MAX);
            for at in 0..name.text().len() {
                let mut other = name.text().as_bytes().to_vec();
                other[at] = if other[at] == b'q' { b'z' } else { b'q' };
                assert_eq!(Name::of(&other), Name::Other, "{}", String::from_utf8_lossy(&other));
                for byte in 0..=255 {
                    other[at] = byte;
                    let same = byte.eq_ignore_ascii_case(&name.text().as_bytes()[at]);
                    assert_eq!(Name::of(&other) == name, same, "{}", other.escape_ascii());
                }
            }
        }
        assert!((Name::Other as u8) < 64, "the set of names is one u64");
        assert_eq!(Name::of(b""), Name::Other);
    }
}
