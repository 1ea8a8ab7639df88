//! The service `prometheus-exporter` of `http-request use-service`: metrics.
//!
//! [`respond`] is called on the thread of the change path, between two events, with a view of all live state. A response that is long comes in
//! pieces: [`ServiceResponse::in_pieces`] takes a [`MetricsCursor`], and [`go_on`] gives a piece for a cursor each time the client has read
//! the one before. Nothing may be held between two pieces but what is in the cursor, and what is in use may have changed.
//!
//! Until there is something to respond with, `Service::is_available` refuses the name in the configuration.

use baton_proxy::desk::{Piece, ServiceRequest, ServiceResponse};

use crate::control::Control;

/// Where a response goes on.
#[derive(Debug)]
pub(crate) struct MetricsCursor;

/// The response to a request.
pub(crate) fn respond(_: &Control, _: &ServiceRequest) -> ServiceResponse {
    ServiceResponse::new(200, "text/plain; version=0.0.4", "").in_pieces(Box::new(MetricsCursor))
}

/// The next piece of a response.
pub(crate) fn go_on(_: &Control, MetricsCursor: MetricsCursor) -> Piece {
    Piece::default()
}
