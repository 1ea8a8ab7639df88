//! The Prometheus exporter: the values of `show info` and `show stat` under the names that HAProxy 2.6 gives to them, and Baton's own.
//!
//! [`rows`] says which metric is which value, [`query`] reads what is asked for, [`scrape`] reads live state some objects at a time, and
//! [`exposition`] makes text of it, piece by piece. Both go on where they were when the piece before is with the client, so neither many
//! servers nor a slow reader hold up the control thread.

mod exposition;
mod own;
mod parts;
mod query;
mod rows;
mod scrape;
mod tables;
mod text;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use baton_proxy::desk::{Cursor, Piece, ServiceRequest, ServiceResponse};
use baton_tls::store::{Entry, StoreView};
use tokio::sync::oneshot;

use self::exposition::Exposition;
use self::own::CertificateEnd;
use self::query::ScrapeQuery;
use self::scrape::Scrape;
use crate::control::Control;

/// Scrapes in progress at once; further ones are refused. Each has 8 bytes for every metric of every object.
const SCRAPES_MAX: usize = 16;

/// Why there is no exposition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ScrapeRefusal {
    /// The query is malformed.
    InvalidQuery,
    /// [`SCRAPES_MAX`] are in progress.
    TooMany,
}

/// Where a response goes on.
#[derive(Debug)]
pub(crate) enum MetricsCursor {
    /// Values are being read.
    Reading(Box<Scrape>),
    /// Text is being made of them.
    Writing(Box<Exposition>),
}

/// Responds to a request. Certificates are walked over on another thread first, as there may be very many.
pub(crate) fn respond(control: &Control, request: &ServiceRequest, reply: oneshot::Sender<ServiceResponse>) {
    let query = request.target.splitn(2, |byte| *byte == b'?').nth(1).unwrap_or_default();
    let mut scrape = match begin(control, query, Instant::now()) {
        Ok(scrape) => scrape,
        Err(refusal) => return drop(reply.send(refusal.response())),
    };
    if scrape.own.is_none() {
        return drop(reply.send(exposition_of(scrape)));
    }
    let store = control.line.store();
    tokio::task::spawn_local(async move {
        let ends = tokio::task::spawn_blocking(move || certificate_ends(&store)).await;
        if let (Some(own), Ok(ends)) = (&mut scrape.own, ends) {
            own.add_certificates(ends);
        }
        // Who left does not want it any more.
        let _ = reply.send(exposition_of(scrape));
    });
}

fn exposition_of(scrape: Scrape) -> ServiceResponse {
    let cursor = MetricsCursor::Reading(Box::new(scrape));
    ServiceResponse::new(200, "text/plain; version=0.0.4", "").in_pieces(Box::new(cursor))
}

impl ScrapeRefusal {
    fn response(self) -> ServiceResponse {
        match self {
            ScrapeRefusal::InvalidQuery => {
                ServiceResponse::new(400, "text/html", INVALID_QUERY).with("connection", "close")
            }
            ScrapeRefusal::TooMany => {
                ServiceResponse::new(503, "text/plain", "Too many scrapes are in progress.\n").with("retry-after", "1")
            }
        }
    }
}

/// HAProxy's page.
const INVALID_QUERY: &str =
    "<html><body><h1>400 Bad request</h1>\nYour browser sent an invalid request.\n</body></html>\n";

/// Begins a scrape with the query of its URL.
fn begin(control: &Control, query: &[u8], now: Instant) -> Result<Scrape, ScrapeRefusal> {
    let query = ScrapeQuery::parse(query).map_err(|_| ScrapeRefusal::InvalidQuery)?;
    if Arc::strong_count(&control.scrapes) > SCRAPES_MAX {
        return Err(ScrapeRefusal::TooMany);
    }
    let scrape = Scrape::new(control, query, now);
    Ok(scrape)
}

impl MetricsCursor {
    /// The next piece of text, which may be empty, and how it goes on after that. Takes a fraction of a millisecond.
    pub(crate) fn go_on(self, control: &Control, now: Instant) -> Piece {
        let (text, next) = self.step(control, now);
        Piece { bytes: text.into_bytes(), next: next.map(|cursor| Cursor(Box::new(cursor))) }
    }

    fn step(self, control: &Control, now: Instant) -> (String, Option<MetricsCursor>) {
        match self {
            MetricsCursor::Reading(mut scrape) => {
                let next = match scrape.read(control, now) {
                    false => MetricsCursor::Reading(scrape),
                    true => MetricsCursor::Writing(Box::new(Exposition::new(*scrape))),
                };
                (String::new(), Some(next))
            }
            MetricsCursor::Writing(mut exposition) => match exposition.next_piece() {
                Some(piece) => (piece, Some(MetricsCursor::Writing(exposition))),
                None => (String::new(), None),
            },
        }
    }
}

/// When each certificate ends. Walks over all of them, of which there may be very many: not for the control thread.
fn certificate_ends(store: &StoreView) -> Vec<CertificateEnd> {
    let end = |entry: Arc<Entry>| {
        let (_, until) = entry.certificate().validity();
        (entry.path().display().to_string(), until)
    };
    store.entries().into_iter().map(end).collect()
}
