//! The ways in which a load can ask: what is counted must not depend on them.

use std::time::Duration;

use baton_prove::LoadOptions;

/// How a load asks.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub keep_alive: bool,
    pub threads: usize,
    pub concurrency: usize,
    /// `None` is a closed loop.
    pub rate: Option<f64>,
}

impl Shape {
    /// Kept connections and a connection each, one thread and two, few connections and more, closed loop and open model.
    pub fn all() -> impl Iterator<Item = Shape> {
        (0..16).map(|number| Shape {
            keep_alive: number & 1 == 0,
            threads: if number & 2 == 0 { 1 } else { 2 },
            concurrency: if number & 4 == 0 { 2 } else { 7 },
            rate: (number & 8 != 0).then_some(5000.0),
        })
    }

    /// The options in this shape; a failure is followed by the next request at once.
    pub fn of(self, options: LoadOptions) -> LoadOptions {
        LoadOptions {
            keep_alive: self.keep_alive,
            threads: self.threads,
            concurrency: self.concurrency,
            rate: self.rate,
            rest_after_failure: Duration::ZERO,
            ..options
        }
    }
}
