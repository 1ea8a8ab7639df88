//! Health checks of servers, and what follows from them.
//!
//! Checks run on the control thread only, one task a server, never on a request's path. The pure core is `check`, which takes events and
//! the time and gives effects, with [`health`], HAProxy's counter, in it; and `following`, who tracks whom. The shell is [`Checker`]: it holds the
//! tasks, logs and changes servers. `probe` speaks to a server once, within its `patience`, by a `plan` made of the model; `response`
//! is what has come back so far, [`expect`] judges it; `sockets` are passed from one check to the next; [`text`] writes HAProxy's log lines. The change path names the backends that a reload changed, and no other one is looked
//! at; of those, a check whose settings did not change goes on in its rhythm, with its counters.
//!
//! The state itself is [`ServerState`](baton_proxy::balance::ServerState)'s, which every core reads.

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]

mod agent;
mod check;
mod checker;
pub mod expect;
mod external;
mod following;
pub mod health;
mod http2;
mod live;
mod matching;
mod orders;
mod patience;
mod plan;
mod probe;
mod prober;
mod protocol;
mod proxy_header;
mod report;
mod response;
mod script;
mod shared;
mod sockets;
mod socks;
pub mod text;
mod vip;

/// What a server's bytes make a check do, for fuzz targets: each protocol's rules, patterns, and HTTP, whole and in two pieces.
#[doc(hidden)]
pub fn judge_bytes(bytes: &[u8]) {
    for split in [0, bytes.len() / 2] {
        let mut response = response::Response::new(baton_http::ResponseTo::default());
        if response.push(&bytes[..split]).and_then(|()| response.push(&bytes[split..])).is_ok()
            && let Some(head) = response.head()
        {
            let expect = expect::Expect::usual();
            let _ = expect.judge(head, response.content(), response.is_complete(), &mut |_| Vec::new());
        }
    }
    protocol::judge_all(bytes);
    agent::read_bytes(bytes);
}

#[cfg(test)]
mod tests;

pub use agent::agent_health;
pub use checker::{AdminMove, ChangedBackend, Checker, Recalled};
pub use orders::AgentOrder;
pub use prober::{Prober, VipQuestion};
pub use report::{Report, Status};
pub use shared::{Event, Severity};
