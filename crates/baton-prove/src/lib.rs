//! The other two ends of the wire: a load client that never stops at an error, sessions held open, and origins that count.
//!
//! Everything here works on any server and knows nothing of the proxy. It even reads HTTP/1 by its own few lines (module `wire`)
//! instead of by the proxy's parser: an instrument that shares a parser with what it measures shares its mistakes.
//!
//! Each end runs on threads of its own, so that the caller's runtime is not disturbed and may be of any kind: `start` spawns,
//! a handle shows what happens live, and `stop().await` ends it and gives the result.
//!
//! - [`load`]: requests as fast as asked for, each failure classified and kept with its instant
//! - [`sessions`]: WebSockets and TCP tunnels held open, checked byte for byte
//! - [`origin`]: demo origins that say what they saw
//! - [`experiment`]: a server, a load, and something done to it again and again
//! - [`phase`]: which requests overlapped a change
//! - [`proof`]: the results of experiments, and how they are shown
//! - [`report`], [`table`], [`progress`]: results as numbers, as text, and as one live line
//! - [`certificates`]: certificates made on the fly
//! - [`units`]: times and counts as people write them
//!
//! ```
//! use baton_prove::{Load, LoadOptions, Origin, OriginOptions, Report, Request};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let origin = Origin::start(OriginOptions::new("demo"))?;
//! let mut options = LoadOptions::new(origin.address());
//! options.requests = vec![Request::get("/bytes/1000"), Request::get("/")];
//! options.concurrency = 4;
//! options.count = Some(100);
//! let report = Report::new(&Load::start(options)?.wait().await);
//! println!("{report}");
//! assert_eq!((report.completed, report.failed), (100, 0));
//! origin.stop().await
//! # })?;
//! # Ok::<(), std::io::Error>(())
//! ```

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]
#![forbid(unsafe_code)]

pub mod certificates;
pub mod experiment;
pub mod failure;
#[cfg(any(test, feature = "fuzzing"))]
pub mod hostile;
pub mod load;
pub mod origin;
pub mod phase;
pub mod progress;
pub mod proof;
pub mod report;
pub mod sessions;
pub mod stream;
pub mod table;
pub mod units;
pub mod websocket;

mod lane;
mod wire;

pub use failure::{Failure, FailureKind};
pub use load::{Load, LoadHandle, LoadOptions, LoadResult, Request, Series};
pub use origin::{Origin, OriginHandle, OriginOptions};
pub use phase::Phase;
pub use progress::Progress;
pub use proof::Proof;
pub use report::Report;
pub use sessions::{SessionOptions, Sessions, SessionsHandle, SessionsResult};
pub use stream::{ServerEndpoint, Target, Tls, TlsOptions};
