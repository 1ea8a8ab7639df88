#![forbid(unsafe_code)]
//! Sample fetches, converters, ACLs, actions and log-format strings: one table row each, and their evaluation.
//!
//! [`compile`] turns the words of a proxy's rules into [`ProxyRules`], with all [`Problem`]s at once; the request line
//! then asks it for a [`Verdict`] with a [`Context`] of borrowed facts. Adding a word means adding a row: to the tables in
//! `fetch`, `converter` or `action`.
//!
//! There is no socket here, no task and no clock but [`Context::now`]; files and the environment come in through
//! [`Files`]. Evaluating allocates only for values that are not a part of the message, and nothing at all for a proxy
//! without rules. Regular expressions take linear time.

mod acl;
mod action;
mod args;
mod condition;
mod context;
mod converter;
mod expr;
mod fetch;
mod format;
mod keywords;
mod later;
mod outside;
mod pattern;
mod place;
mod problem;
mod reply;
mod rules;
mod sample;
mod substitute;
mod variable;

pub use condition::Condition;
pub use context::{Context, LogLevel, ProxyName, Request, Response};
pub use expr::Expr;
pub use format::Format;
pub use keywords::{Keyword, keywords};
pub use outside::{Files, NoFiles};
pub use place::Place;
pub use problem::{Fault, Problem};
pub use reply::{Redirect, Reply, reason};
pub use rules::{Denial, ProxyRules, Verdict, compile};
pub use sample::{Sample, Type};
pub use variable::{VARIABLE_BYTES_MAX, VARIABLES_MAX, VariableName, VariableScope, Variables};
