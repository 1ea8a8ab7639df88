//! What algorithms lay for all servers together, beside the backend's lock: tables and rings of points.

use std::sync::Arc;

use super::map::Table;
use super::ring::{Circle, Points};

/// What is to be laid, for active servers and for backups; `None`: nothing.
#[derive(Debug)]
pub(super) struct LayoutOrders(pub(super) [Option<LayoutOrder>; 2]);

/// What is to be laid.
#[derive(Debug)]
pub(super) enum LayoutOrder {
    /// A table for these weights.
    Table {
        /// For which edition of the servers it is.
        edition: u64,
        weights: Vec<u32>,
    },
    /// These points.
    Circle(Vec<Points>),
}

/// What was laid for [`LayoutOrders`].
#[derive(Clone, Debug, Default)]
pub(super) struct Layouts(pub(super) [Option<Layout>; 2]);

/// What was laid for an [`LayoutOrder`].
#[derive(Clone, Debug)]
pub(super) enum Layout {
    Table { edition: u64, table: Arc<Table> },
    Circle(Arc<Circle>),
}

impl LayoutOrders {
    /// Takes its time, unless what was laid `before` is what is ordered.
    pub(super) fn lay(self, before: &Layouts) -> Layouts {
        let [active, backups] = self.0;
        let lay = |order: Option<LayoutOrder>, before: &Option<Layout>| {
            let order = order?;
            Some(before.as_ref().and_then(|before| before.again(&order)).unwrap_or_else(|| order.lay()))
        };
        Layouts([lay(active, &before.0[0]), lay(backups, &before.0[1])])
    }
}

impl Layout {
    /// The layout for this order, if it is one for it.
    fn again(&self, order: &LayoutOrder) -> Option<Layout> {
        match (self, order) {
            (Layout::Table { table, .. }, LayoutOrder::Table { edition, weights }) if table.is_for(weights) => {
                Some(Layout::Table { edition: *edition, table: Arc::clone(table) })
            }
            (Layout::Circle(circle), LayoutOrder::Circle(points)) if circle.is_for(points) => {
                Some(Layout::Circle(Arc::clone(circle)))
            }
            _ => None,
        }
    }
}

impl LayoutOrder {
    fn lay(self) -> Layout {
        match self {
            LayoutOrder::Table { edition, weights } => Layout::Table { edition, table: Arc::new(Table::lay(weights)) },
            LayoutOrder::Circle(points) => Layout::Circle(Arc::new(Circle::lay(points))),
        }
    }
}
