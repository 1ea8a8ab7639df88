//! A certificate as a file: PEM (RFC 7468).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls_pki_types::PrivateKeyDer;
use zeroize::Zeroizing;

use super::Certificate;

/// Characters of a line (RFC 7468 2).
const LINE: usize = 64;

impl Certificate {
    /// The certificate, what is sent behind it, and its private key. The caller says who may see that.
    pub fn to_pem(&self) -> Zeroizing<String> {
        let mut out = Zeroizing::new(String::new());
        let (form, key) = self.key_der();
        let key = Zeroizing::new(key);
        let label = match form.wrap(&key) {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        block(&mut out, label, &key);
        block(&mut out, "CERTIFICATE", self.der());
        self.chain().iter().for_each(|der| block(&mut out, "CERTIFICATE", der));
        out
    }
}

fn block(out: &mut String, label: &str, der: &[u8]) {
    let text = Zeroizing::new(BASE64_STANDARD.encode(der));
    // So that no copy of a key is left behind by growing.
    out.reserve_exact(text.len() + text.len() / LINE + 2 * label.len() + 40);
    out.push_str(&format!("-----BEGIN {label}-----\n"));
    for line in text.as_bytes().chunks(LINE) {
        out.extend(line.iter().copied().map(char::from));
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
}
