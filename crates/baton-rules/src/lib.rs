#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]
#![forbid(unsafe_code)]
//! Sample fetches, converters, ACLs, actions and log-format strings: one table row each, and their evaluation.
//!
//! [`compile`] turns the words of a proxy's rules into [`ProxyRules`], with all [`RuleDiagnostic`]s at once; the request line
//! then asks it for a [`Verdict`] with a [`Context`] of borrowed facts. Adding a word means adding a row: to the tables in
//! `fetch`, `converter` or `action`.
//!
//! There is no socket here, no task and no clock but [`Context::now`]; files and the environment come in through
//! [`Files`]. Evaluating allocates only for values that are not a part of the message, and nothing at all for a proxy
//! without rules. Regular expressions take linear time.
//!
//! Where we differ from HAProxy 2.6 on purpose:
//! - Regular expressions have no look-around and no back-references, see the `regex` crate.
//! - A method or target that could not be sent as such (a blank in it, no form of RFC 9112 3.2) is not applied; HAProxy
//!   sends it. A header's name must be a token.
//! - `Content-Length` and `Transfer-Encoding` are not changed by rules.
//! - `set-path` on `http://host` keeps the authority; HAProxy drops it.
//! - `hdr_val` and its like read the digits a text begins with; HAProxy also counts bytes below `0` as digits.

mod acl;
mod action;
mod alone;
mod args;
mod body;
mod capture;
mod check;
mod compiled;
mod condition;
mod context;
mod converter;
mod error_file;
mod expr;
mod fetch;
mod format;
mod forwarded;
mod key;
mod keywords;
mod later;
mod live;
mod log;
mod names;
mod nearest;
mod outside;
pub mod passwords;
mod pattern;
mod place;
mod problem;
mod process;
mod process_line;
mod reference;
mod reply;
mod rules;
mod sample;
mod settings;
mod stick;
mod stored;
mod substitute;
mod tracking;
mod units;
mod variable;
mod wait;

pub use alone::{Alone, with_bare_context};
pub use body::Body;
pub use capture::{CaptureSide, CapturedValues, Captures};
pub use check::{
    CheckAssignment, CheckFacts, CheckValue, CheckVariables, check_expression, check_format, check_variable,
};
pub use compiled::CompiledRules;
pub use condition::Condition;
pub use context::{Context, Listener, LogLevel, ProxyName, Request, Response, RuleLine, TcpContent};
pub use converter::crc32c;
pub use error_file::check_error_file;
pub use expr::Expr;
pub use fetch::rdp_server;
pub use format::{Format, Tag};
pub use key::SampleKey;
pub use keywords::{Keyword, keywords};
pub use live::{
    BackendFigure, ConnectionFigure, Endpoint, ExchangeFigure, Figure, FrontendFigure, LiveState, ProcessFigure,
    ServerFigure, Side, TcpFigure,
};
pub use log::{DateSpelling, ExchangeCourse, Fact, LogSource, NoLog, UniqueId};
pub use nearest::{nearest, suggestion};
pub use outside::{BufferLimits, CheckFiles, Files, KnownAcls, NameReference, NoFiles, ReferenceKind};
pub use place::RulePosition;
pub use problem::{RuleDiagnostic, RuleError};
pub use process::{KeptProcessVariable, PROCESS_VARIABLES_MAX, ProcessVariables};
pub use process_line::{VariableLine, VariableLineError};
pub use reference::{
    ChangedKey, Entry, FileEdits, FoundPattern, Live, PatternChange, PatternRefusal, PlannedPatterns, Reference,
    References, Values,
};
pub use reply::{Redirect, Reply, ResponseSource, RuleResponse, reason};
pub use rules::{ProxyRules, Verdict, compile, has_rules};
pub use sample::{Sample, Type};
pub use settings::{QueuePriority, RuleSettings, SettingValues, SocketChanges};
pub use stick::StickRule;
pub use tracking::{
    BYTES_IN, BYTES_OUT, Counted, ERRORS, FAILURES, GLITCHES, REQUESTS, SESSIONS, TrackedCounters, TrackedScopes,
    of_status,
};
pub use variable::{VARIABLE_BYTES_MAX, VARIABLES_MAX, VariableName, VariableScope, VariableScopes, Variables};
pub use wait::{AddressWait, BodyWait, RuleCursor, RuleWait};
