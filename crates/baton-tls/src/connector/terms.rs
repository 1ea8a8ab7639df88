//! What connections to a server are encrypted by, as text that two processes can compare.

use std::fmt::Write;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};

use super::{ClientConfigs, Connector, ConnectorSettings};

impl Connector {
    /// By what a connection is made now, as text, and the [edition](Connector::edition) of that: all that the line says, and what the files hold.
    /// Where another process says the same, connections of the one may be used by the other. `None`: a file cannot be used.
    pub fn terms(&self) -> Option<(u64, Arc<str>)> {
        let made = self.made.load_full();
        let made = if made.edition == self.files.edition() { made } else { self.made_anew().ok()? };
        let terms = made.terms.get_or_init(|| made.digest(&self.words).into()).clone();
        Some((made.edition, terms))
    }
}

impl ClientConfigs {
    fn digest(&self, words: &ConnectorSettings) -> String {
        let mut context = Context::new(&SHA256);
        // With its length before it, so that the end of one piece is not the beginning of another.
        let mut add = |piece: &[u8]| {
            context.update(&(piece.len() as u64).to_be_bytes());
            context.update(piece);
        };
        add(format!("{:?} {:?}", words.settings, words.alpn).as_bytes());
        for file in &self.verified_by {
            let (certificates, lists) = match file {
                None => (&[][..], &[][..]),
                Some(file) => (&file.certificates[..], &file.lists[..]),
            };
            add(&certificates.len().to_be_bytes());
            certificates.iter().for_each(|der| add(der));
            add(&lists.len().to_be_bytes());
            lists.iter().for_each(|der| add(der));
        }
        self.identity.iter().flat_map(|identity| &identity.cert).for_each(|der| add(der));
        let digest = context.finish();
        digest.as_ref().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}
