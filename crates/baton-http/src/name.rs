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
        let candidates: &[Name] = match name.len() {
            2 => &[Te],
            3 => &[Age, Via],
            4 => &[Host, Date, Etag, Vary],
            5 => &[Range],
            6 => &[Accept, Cookie, Server, Expect, Origin, Pragma],
            7 => &[Upgrade, Expires, Referer, Trailer],
            8 => &[Location],
            9 => &[Forwarded],
            10 => &[Connection, UserAgent, KeepAlive, SetCookie],
            12 => &[ContentType, XRequestId],
            13 => &[CacheControl, Authorization, IfNoneMatch, LastModified, XOriginalTo],
            14 => &[ContentLength],
            15 => &[AcceptEncoding, AcceptLanguage, XForwardedFor],
            16 => &[ContentEncoding, ProxyConnection, XForwardedHost],
            17 => &[TransferEncoding, IfModifiedSince, XForwardedProto, SecWebsocketKey],
            19 => &[ProxyAuthorization],
            20 => &[SecWebsocketAccept],
            _ => return Other,
        };
        let first = name[0] | 0x20;
        for &known in candidates {
            let text = known.text().as_bytes();
            if text[0] == first && is_same(text, name) {
                return known;
            }
        }
        Other
    }

    /// This name's bit in a set of names.
    #[inline]
    pub(crate) const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// Whether the token `name` is `text` in any case. `text` has letters in lower case and hyphens only, and as long a name:
/// setting bit 5 turns no other byte of a token into one of these. Long names are compared by words, of which the last
/// one overlaps the one before.
#[inline]
fn is_same(text: &[u8], name: &[u8]) -> bool {
    const CASE: u64 = 0x2020_2020_2020_2020;
    debug_assert_eq!(text.len(), name.len());
    let (Some(text_end), Some(name_end)) = (text.last_chunk::<8>(), name.last_chunk::<8>()) else {
        return text.iter().zip(name).all(|(a, b)| *a == b | 0x20);
    };
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    let heads = text.as_chunks::<8>().0.iter().zip(name.as_chunks::<8>().0);
    word(text_end) == word(name_end) | CASE && heads.into_iter().all(|(a, b)| word(a) == word(b) | CASE)
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
            for at in 0..name.text().len() {
                let mut other = name.text().as_bytes().to_vec();
                other[at] = if other[at] == b'q' { b'z' } else { b'q' };
                assert_eq!(Name::of(&other), Name::Other, "{}", String::from_utf8_lossy(&other));
            }
        }
        assert!((Name::Other as u8) < 64, "the set of names is one u64");
        assert_eq!(Name::of(b""), Name::Other);
    }
}
