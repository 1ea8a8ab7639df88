//! TLS of a connection as it is described to another process: the record layer with its keys, bytes on their way, and what was agreed on.
//!
//! Bytes are in base64. They are wiped when they are dropped, and never printed: who has them can read the connection.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use baton_proxy::moving::{MovedBytes, MovedTls, TlsRole};
use baton_tls::rustls::ProtocolVersion;
use baton_tls::rustls::pki_types::CertificateDer;
use baton_tls::{Captured, Facts, OwnCertificate, Verification, suite_of};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

/// More than everything takes that has no length of its own.
const SHORT_BYTES: usize = 1024;

/// Bytes that are nobody else's business.
#[derive(Clone, Default, PartialEq)]
pub struct Hidden(Zeroizing<Vec<u8>>);

impl Hidden {
    fn of(bytes: &[u8]) -> Hidden {
        Hidden(Zeroizing::new(bytes.to_vec()))
    }

    /// Characters of it, with what stands around them.
    fn text_len(&self) -> usize {
        self.0.len().div_ceil(3) * 4 + 3
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes", self.0.len())
    }
}

impl Serialize for Hidden {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(&self.0, &STANDARD))
    }
}

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hidden, D::Error> {
        deserializer.deserialize_str(HiddenText)
    }
}

struct HiddenText;

impl Visitor<'_> for HiddenText {
    type Value = Hidden;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("base64")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Hidden, E> {
        // All of it in one piece of memory, which is wiped.
        let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
        STANDARD.decode_vec(text, &mut bytes).map_err(|_| E::custom("invalid base64"))?;
        Ok(Hidden(bytes))
    }
}

/// TLS on one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TlsRecord {
    /// The record layer: `baton_records::Layer` as bytes.
    pub layer: Hidden,
    /// Received, and encrypted still.
    #[serde(skip_serializing_if = "Hidden::is_empty")]
    pub received: Hidden,
    /// Decrypted, and not read.
    #[serde(skip_serializing_if = "Hidden::is_empty")]
    pub plain: Hidden,
    /// Encrypted, and not sent.
    #[serde(skip_serializing_if = "Hidden::is_empty")]
    pub unsent: Hidden,
    /// Bytes of a writer's that are in there, which it begins its next write with.
    #[serde(skip_serializing_if = "is_zero")]
    pub promised: usize,
    /// The peer has said all.
    #[serde(skip_serializing_if = "is_false")]
    pub read_ended: bool,
    /// We have.
    #[serde(skip_serializing_if = "is_false")]
    pub write_ended: bool,
    /// The version, by its number.
    pub version: u16,
    /// The cipher suite, by its number.
    pub suite: u16,
    /// The protocol of ALPN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpn: Option<Hidden>,
    /// The name that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
    /// The session was resumed.
    #[serde(skip_serializing_if = "is_false")]
    pub resumed: bool,
    /// The certificates that the peer showed, its own first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peer: Vec<Hidden>,
    /// What was wrong with them: the last error, the peer's own first one, the first one above it, and at which depth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<[u32; 4]>,
    /// The certificate that was shown to the peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours: Option<Hidden>,
    /// Lists of the client's hello.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub captured: Option<CapturedRecord>,
}

/// What is kept of a hello (`tune.ssl.capture-buffer-size`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapturedRecord {
    /// The version of the message.
    pub version: u16,
    /// Cipher suites.
    pub ciphers: Hidden,
    /// The hash of all of them.
    pub ciphers_hash: u64,
    /// Numbers of extensions.
    pub extensions: Hidden,
    /// Groups for the key exchange.
    pub groups: Hidden,
    /// Formats of points on curves.
    pub point_formats: Hidden,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &usize) -> bool {
    *value == 0
}

impl TlsRecord {
    /// Of a connection that leaves.
    pub fn of(tls: &MovedTls) -> TlsRecord {
        let MovedBytes { received, plain, unsent, promised, read_ended, write_ended } = &tls.bytes;
        let facts = &tls.facts;
        let Verification { result, error, ca_error, ca_depth } = facts.verification;
        let found = facts.verification != Verification::default();
        TlsRecord {
            layer: Hidden::of(tls.layer()),
            received: Hidden::of(received),
            plain: Hidden::of(plain),
            unsent: Hidden::of(unsent),
            promised: *promised,
            read_ended: *read_ended,
            write_ended: *write_ended,
            version: facts.version.map_or(0, u16::from),
            suite: facts.suite.map_or(0, |suite| suite.suite().into()),
            alpn: facts.alpn.as_deref().map(Hidden::of),
            sni: facts.sni.as_deref().map(str::to_owned),
            resumed: facts.resumed,
            peer: facts.peer.iter().map(|der| Hidden::of(der)).collect(),
            verification: found.then_some([result, error, ca_error, ca_depth]),
            ours: facts.ours.as_ref().and_then(OwnCertificate::der).map(|der| Hidden::of(der)),
            captured: facts.captured.as_deref().map(CapturedRecord::of),
        }
    }

    /// Bytes of it as it travels, at most.
    pub fn bytes(&self) -> usize {
        let own = [&self.layer, &self.received, &self.plain, &self.unsent];
        let captured = self
            .captured
            .iter()
            .flat_map(|captured| [&captured.ciphers, &captured.extensions, &captured.groups, &captured.point_formats]);
        let more = self.alpn.iter().chain(&self.ours).chain(&self.peer).chain(captured);
        // A character that is escaped has six.
        let sni = self.sni.as_ref().map_or(0, |sni| 6 * sni.len());
        own.into_iter().chain(more).map(Hidden::text_len).sum::<usize>() + sni + SHORT_BYTES
    }

    /// TLS that goes on here, as this end of the connection; `None`: it cannot. A certificate of ours that many connections show is in `shown` once.
    pub fn moved(self, role: TlsRole, shown: &mut Vec<Arc<CertificateDer<'static>>>) -> Option<Box<MovedTls>> {
        let bytes = MovedBytes {
            received: self.received.0.to_vec(),
            plain: self.plain.0.to_vec(),
            unsent: self.unsent.0.to_vec(),
            promised: self.promised,
            read_ended: self.read_ended,
            write_ended: self.write_ended,
        };
        let [result, error, ca_error, ca_depth] = self.verification.unwrap_or_default();
        let mut alone = |der: Hidden| match shown.iter().find(|shown| shown.as_ref().as_ref() == der.0.as_slice()) {
            Some(shown) => shown.clone(),
            None => {
                let der = Arc::new(CertificateDer::from(der.0.to_vec()));
                shown.push(der.clone());
                der
            }
        };
        let facts = Facts {
            version: Some(self.version).filter(|version| *version > 0).map(ProtocolVersion::from),
            suite: suite_of(self.suite),
            alpn: self.alpn.map(|alpn| alpn.0[..].into()),
            sni: self.sni.map(Into::into),
            resumed: self.resumed,
            peer: self.peer.iter().map(|der| CertificateDer::from(der.0.to_vec())).collect(),
            verification: Verification { result, error, ca_error, ca_depth },
            ours: self.ours.map(|der| OwnCertificate::Alone(alone(der))),
            captured: self.captured.map(|captured| Box::new(captured.captured())),
        };
        MovedTls::new(role, self.layer.0, bytes, facts).map(Box::new)
    }
}

impl CapturedRecord {
    fn of(captured: &Captured) -> CapturedRecord {
        CapturedRecord {
            version: captured.version,
            ciphers: Hidden::of(&captured.ciphers),
            ciphers_hash: captured.ciphers_hash,
            extensions: Hidden::of(&captured.extensions),
            groups: Hidden::of(&captured.groups),
            point_formats: Hidden::of(&captured.point_formats),
        }
    }

    fn captured(self) -> Captured {
        Captured {
            version: self.version,
            ciphers: self.ciphers.0[..].into(),
            ciphers_hash: self.ciphers_hash,
            extensions: self.extensions.0[..].into(),
            groups: self.groups.0[..].into(),
            point_formats: self.point_formats.0[..].into(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A record layer of TLS 1.3 with AES-128-GCM, as bytes, whose keys are these two bytes.
    pub fn layer(keys: [u8; 2]) -> Vec<u8> {
        let direction = |key: u8| [&[32][..], &[key; 32], &7_u64.to_be_bytes()].concat();
        [&[1, 1, 3, 1, 0x40, 0, 0, 0, 0, 0, 0][..], &direction(keys[0]), &direction(keys[1]), &[0; 4]].concat()
    }

    /// One with everything, of a connection to a server.
    pub fn record_of_client() -> TlsRecord {
        let mut record = record();
        record.layer.0[1] = 0;
        record
    }

    /// One with everything, of a connection with a client.
    pub fn record() -> TlsRecord {
        TlsRecord {
            layer: Hidden::of(&layer([0xd7, 0xd8])),
            received: Hidden::of(&[23, 3, 3]),
            plain: Hidden::of(b"GET"),
            unsent: Hidden::of(&[9]),
            promised: 1,
            read_ended: true,
            write_ended: true,
            version: 0x0304,
            suite: 0x1301,
            alpn: Some(Hidden::of(b"http/1.1")),
            sni: Some("a.example".into()),
            resumed: true,
            peer: vec![Hidden::of(b"peer"), Hidden::of(b"authority")],
            verification: Some([21, 20, 19, 1]),
            ours: Some(Hidden::of(b"ours")),
            captured: Some(CapturedRecord {
                version: 0x0303,
                ciphers: Hidden::of(&[0x13, 1]),
                ciphers_hash: u64::MAX,
                extensions: Hidden::of(&[0, 10]),
                groups: Hidden::of(&[0, 29]),
                point_formats: Hidden::of(&[0]),
            }),
        }
    }

    #[test]
    fn all_that_is_known_is_read_as_it_is_written() {
        let record = record();
        let text = serde_json::to_string(&record).unwrap();
        let read: TlsRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(read, record);
        assert!(record.bytes() >= text.len());
        let mut shown = Vec::new();
        let moved = read.moved(TlsRole::Server, &mut shown).expect("it can go on");
        assert_eq!(TlsRecord::of(&moved), record);
        let again = record.moved(TlsRole::Server, &mut shown).expect("it can go on");
        assert_eq!(shown.len(), 1, "many connections show one certificate");
        assert_eq!(again.facts.suite.map(|suite| u16::from(suite.suite())), Some(0x1301));
    }

    #[test]
    fn what_cannot_go_on_is_refused() {
        let check = |change: fn(&mut TlsRecord), expect: bool| {
            let mut record = record();
            change(&mut record);
            assert_eq!(record.moved(TlsRole::Server, &mut Vec::new()).is_some(), expect);
        };
        check(|_| {}, true);
        check(|record| record.layer = Hidden::default(), false);
        check(|record| record.layer.0[0] = 2, false);
        check(|record| record.layer.0[1] = 0, false);
        check(|record| _ = record.layer.0.pop(), false);
        check(|record| record.received = Hidden::of(&vec![0; MovedTls::BYTES_MAX + 1]), false);
        check(|record| record.promised = usize::MAX, false);
        // What is only shown may be unknown here.
        check(|record| (record.version, record.suite) = (0x0399, 1), true);
        assert!(serde_json::from_str::<TlsRecord>(r#"{"layer":"*"}"#).is_err());
    }

    #[test]
    fn nothing_of_it_is_printed() {
        let text = format!("{:?}", record());
        assert!(!text.contains("215") && !text.contains("d7") && text.contains("layer: 97 bytes"), "{text}");
    }
}
