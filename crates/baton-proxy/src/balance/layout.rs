//! What algorithms lay for all servers together, beside the backend's lock: tables and rings of points.

use std::sync::Arc;

use super::map::Table;
use super::ring::{Circle, Points};

/// What is to be laid, for active servers and for backups; `None`: nothing.
#[derive(Debug)]
pub(super) struct Orders(pub(super) [Option<Order>; 2]);

/// What is to be laid.
#[derive(Debug)]
pub(super) enum Order {
    /// A table for these weights.
    Table {
        /// For which edition of the servers it is.
        edition: u64,
        weights: Vec<u32>,
    },
    /// These points.
    Circle(Vec<Points>),
}

/// What was laid for [`Orders`].
#[derive(Debug)]
pub(super) struct Layouts(pub(super) [Option<Layout>; 2]);

/// What was laid for an [`Order`].
#[derive(Debug)]
pub(super) enum Layout {
    Table { edition: u64, table: Arc<Table> },
    Circle(Arc<Circle>),
}

impl Orders {
    /// Takes its time.
    pub(super) fn lay(self) -> Layouts {
        Layouts(self.0.map(|order| Some(order?.lay())))
    }
}

impl Order {
    pub(super) fn lay(self) -> Layout {
        match self {
            Order::Table { edition, weights } => Layout::Table { edition, table: Arc::new(Table::lay(weights)) },
            Order::Circle(points) => Layout::Circle(Arc::new(Circle::lay(points))),
        }
    }
}
