//! A plain TCP session: a running sequence of bytes that has to come back as it was sent.

use super::{
    LossKind,
    link::{Link, fill},
};
use crate::stream::Stream;

pub(super) struct Tunnel {
    link: Link,
    session: u64,
    message_bytes: usize,
    /// Bytes of the sequence that were sent and came back.
    echoed: u64,
    /// The message under way.
    message: Vec<u8>,
}

impl Tunnel {
    pub(super) fn new(stream: Stream, session: u64, message_bytes: usize) -> Tunnel {
        Tunnel { link: Link::new(stream), session, message_bytes, echoed: 0, message: Vec::new() }
    }

    pub(super) async fn watch(&mut self) -> LossKind {
        match self.link.step().await {
            // Everything that was sent has come back already.
            Ok(()) => LossKind::WrongEcho,
            Err(kind) => kind,
        }
    }

    pub(super) async fn exchange(&mut self) -> Result<(), LossKind> {
        self.message.clear();
        fill(self.session, self.echoed, self.message_bytes, &mut self.message);
        self.link.out.extend_from_slice(&self.message);
        let mut checked = 0;
        while checked < self.message.len() {
            self.link.step().await.map_err(|kind| if checked > 0 { kind.within_echo() } else { kind })?;
            let came = &self.link.input;
            if !self.message[checked..].starts_with(came) {
                return Err(LossKind::WrongEcho);
            }
            checked += came.len();
            self.link.input.clear();
        }
        self.echoed += checked as u64;
        Ok(())
    }

    pub(super) async fn close(mut self) -> Result<(), LossKind> {
        if self.link.finish().await.is_err() {
            return Ok(());
        }
        match self.link.step().await {
            Ok(()) => Err(LossKind::WrongEcho),
            Err(_) => Ok(()),
        }
    }
}
