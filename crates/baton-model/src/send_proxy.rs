//! The PROXY protocol header that a server gets first (configuration manual, `send-proxy`, `send-proxy-v2`, `proxy-v2-options`).

use std::ops::BitOr;

/// What `send-proxy` and its companions add up to. As in HAProxy each of them sets flags of its own, whatever stands before it: any flag means
/// that a header is sent, and [`SendProxy::V2`] that it is one of version 2, which alone has room for the others.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SendProxy(u16);

/// Which header is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProxyProtocol {
    /// None.
    Off,
    /// Version 1, text.
    V1,
    /// Version 2, binary.
    V2,
}

impl SendProxy {
    /// No header.
    pub const OFF: SendProxy = SendProxy(0);
    /// `send-proxy`.
    pub const V1: SendProxy = SendProxy(1);
    /// `send-proxy-v2`.
    pub const V2: SendProxy = SendProxy(1 << 1);
    /// `ssl`: whether and how the client's connection is encrypted.
    pub const SSL: SendProxy = SendProxy(1 << 2);
    /// `cert-cn`: the common name of the client's certificate.
    pub const CERT_CN: SendProxy = SendProxy(1 << 3 | SendProxy::SSL.0);
    /// `ssl-cipher`: the cipher suite of the client's connection.
    pub const SSL_CIPHER: SendProxy = SendProxy(1 << 4 | SendProxy::SSL.0);
    /// `cert-sig`: the signature algorithm of the certificate that the client got.
    pub const CERT_SIG: SendProxy = SendProxy(1 << 5 | SendProxy::SSL.0);
    /// `cert-key`: the kind of key of that certificate.
    pub const CERT_KEY: SendProxy = SendProxy(1 << 6 | SendProxy::SSL.0);
    /// `authority`: the name that the client asked for by TLS.
    pub const AUTHORITY: SendProxy = SendProxy(1 << 7);
    /// `crc32c`: a checksum of the header.
    pub const CRC32C: SendProxy = SendProxy(1 << 8);
    /// `unique-id`: by the frontend's `unique-id-format`.
    pub const UNIQUE_ID: SendProxy = SendProxy(1 << 9);

    /// The words of `proxy-v2-options`.
    pub const OPTIONS: [(&str, SendProxy); 8] = [
        ("ssl", SendProxy::SSL),
        ("cert-cn", SendProxy::CERT_CN),
        ("ssl-cipher", SendProxy::SSL_CIPHER),
        ("cert-sig", SendProxy::CERT_SIG),
        ("cert-key", SendProxy::CERT_KEY),
        ("authority", SendProxy::AUTHORITY),
        ("crc32c", SendProxy::CRC32C),
        ("unique-id", SendProxy::UNIQUE_ID),
    ];

    /// Which header is sent.
    pub fn version(self) -> ProxyProtocol {
        match self {
            SendProxy::OFF => ProxyProtocol::Off,
            some if some.has(SendProxy::V2) => ProxyProtocol::V2,
            _ => ProxyProtocol::V1,
        }
    }

    /// Whether a header is sent.
    pub fn is_on(self) -> bool {
        self != SendProxy::OFF
    }

    /// Whether all of these flags are set.
    pub fn has(self, flags: SendProxy) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Without these flags.
    #[must_use]
    pub fn without(self, flags: SendProxy) -> SendProxy {
        SendProxy(self.0 & !flags.0)
    }

    /// This, or version 1 if it is off.
    #[must_use]
    pub fn or_v1(self) -> SendProxy {
        if self.is_on() { self } else { SendProxy::V1 }
    }
}

impl BitOr for SendProxy {
    type Output = SendProxy;

    fn bitor(self, other: SendProxy) -> SendProxy {
        SendProxy(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_add_up_as_in_haproxy() {
        assert_eq!(SendProxy::OFF.version(), ProxyProtocol::Off);
        assert_eq!(SendProxy::CRC32C.version(), ProxyProtocol::V1, "options alone are a header of version 1");
        let both = SendProxy::V1 | SendProxy::V2 | SendProxy::CERT_CN;
        assert_eq!(both.version(), ProxyProtocol::V2);
        assert_eq!(both.without(SendProxy::V1).version(), ProxyProtocol::V2);
        assert_eq!(both.without(SendProxy::V2).version(), ProxyProtocol::V1);
        assert!(both.has(SendProxy::SSL) && !SendProxy::SSL.has(SendProxy::CERT_CN));
    }
}
