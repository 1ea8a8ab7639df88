//! Shared data that one owner still changes.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// What a draft will give to the model. Copies share it until one of them is changed, so that a server that inherits everything
/// from `default-server`, or a proxy from `defaults`, is copied once and never moved.
#[derive(Clone, Debug)]
pub(crate) struct Own<T>(Arc<T>);

impl<T> Own<T> {
    pub fn new(thing: T) -> Own<T> {
        Own(Arc::new(thing))
    }

    /// For the model, which does not change it any more.
    pub fn share(&self) -> Arc<T> {
        Arc::clone(&self.0)
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Own<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}
