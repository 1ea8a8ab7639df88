//! The connections of a core's clients that speak HTTP/2. GOAWAY ends an idle one without losing a request that is on its way, for which HTTP/1 has
//! no means: so these connections end as soon as there is a reason.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use slab::Slab;

use super::{Order, Orders};
use crate::generation::ListenerPlan;

/// The open ones.
#[derive(Debug, Default)]
pub struct Http2Clients(Rc<RefCell<Slab<Http2Client>>>);

/// One of them.
#[derive(Debug)]
struct Http2Client {
    orders: Rc<Orders>,
    listener: Arc<ListenerPlan>,
}

/// A connection among them, until this is dropped.
#[derive(Debug)]
pub struct Http2Membership {
    clients: Rc<RefCell<Slab<Http2Client>>>,
    key: usize,
}

impl Drop for Http2Membership {
    fn drop(&mut self) {
        self.clients.borrow_mut().remove(self.key);
    }
}

impl Http2Clients {
    /// One more, which came by this listener.
    pub fn enter(&self, orders: &Rc<Orders>, listener: &Arc<ListenerPlan>) -> Http2Membership {
        let client = Http2Client { orders: orders.clone(), listener: listener.clone() };
        let key = self.0.borrow_mut().insert(client);
        Http2Membership { clients: self.0.clone(), key }
    }

    /// Ends those that came by listeners which `has_ended`, once no request is in flight. Those that leave for another process are not
    /// ended here: where that turns out to be impossible, they end themselves.
    pub fn end(&self, has_ended: impl Fn(&ListenerPlan) -> bool) {
        let mut known = HashMap::new();
        let clients = self.0.borrow();
        for (_, Http2Client { orders, listener }) in clients.iter().filter(|(_, client)| client.is_served_here()) {
            if *known.entry(listener.id).or_insert_with(|| has_ended(listener)) {
                orders.give(Order::CloseIdle);
            }
        }
    }
}

impl Http2Client {
    fn is_served_here(&self) -> bool {
        self.orders.order() == Order::Run
    }
}
