//! Splicing the body of a message, where nothing in it has to be looked at.

use std::io;
use std::task::{Context, Poll, ready};

use crate::flow::{Body, Flow, Stopped};
use crate::pipes::SPLICED_MIN;
use crate::transport::Transport;

impl Flow {
    /// Takes the next bytes of the body into a pipe: how many. `None`: they are to be copied.
    pub(super) fn splice(
        &mut self,
        cx: &mut Context<'_>,
        from: Transport<'_>,
        to: Transport<'_>,
    ) -> Poll<Result<Option<usize>, Stopped>> {
        let most = match self.body {
            Body::Length(left) => usize::try_from(left).unwrap_or(usize::MAX),
            Body::UntilClose => usize::MAX,
            Body::Chunked | Body::Done => 0,
        };
        let ends = from.spliceable().filter(|_| to.spliceable().is_some() && !self.as_chunks);
        let Some(from) = ends else {
            self.splicer = None;
            return Poll::Ready(Ok(None));
        };
        let splicer = self.splicer.as_mut().filter(|_| most >= SPLICED_MIN);
        let Some(splicer) = splicer.and_then(|splicer| splicer.is_ready().then_some(splicer)) else {
            return Poll::Ready(Ok(None));
        };
        Poll::Ready(match ready!(splicer.poll_fill(cx, from, most)) {
            Ok(0) if self.body == Body::UntilClose => {
                self.body = Body::Done;
                Ok(Some(0))
            }
            Ok(0) => Err(Stopped::Source),
            Ok(count) => {
                if let Body::Length(left) = self.body {
                    let left = left - count as u64;
                    self.body = if left == 0 { Body::Done } else { Body::Length(left) };
                }
                Ok(Some(count))
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.splicer = None;
                Ok(None)
            }
            Err(_) => Err(Stopped::Source),
        })
    }
}
