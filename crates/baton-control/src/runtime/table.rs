//! The commands of a process: one row each.

use baton_model::AccessLevel;
use socket2::Socket;

use super::answer::Answer;
use super::row::{Row, hidden, row};
use super::session::{Call, Session};
use super::{clear, give, info, own, process, servers, stat};
use crate::control::Control;

/// What a command needs to be answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// Only its session.
    Own(fn(&mut Session, &Call) -> Answer),
    /// Live state: answered on the change line.
    Ask(fn(&mut Control, &Call) -> Answer),
    /// The connection itself, on which something else is spoken from then on.
    Take(fn(&mut Control, Socket)),
}

use AccessLevel::{Admin, Operator, User};
use Act::{Ask, Own, Take};

/// All commands, in the order of the help.
pub(super) static ROWS: &[Row<Act>] = &[
    row(
        &["clear", "counters"],
        "[all]",
        "forget the maxima, or everything that was counted",
        Operator,
        Ask(clear::counters),
    ),
    row(&["get", "weight"], "<bk>/<srv>", "the weight of a server, now and as configured", User, Ask(servers::weight)),
    row(&["operator"], "", "give up the rights of an admin in this session", User, Own(own::operator)),
    row(
        &["set", "severity-output"],
        "[none|number|string]",
        "put a severity before messages",
        User,
        Own(own::severity),
    ),
    row(&["set", "timeout"], "[cli] <delay>", "how long this session may be silent (s)", User, Own(own::timeout)),
    row(&["show", "backend"], "", "the names of all backends", User, Ask(process::backends)),
    row(&["show", "cli", "level"], "", "what this session may do", User, Own(own::show_level)),
    row(&["show", "cli", "sockets"], "", "the sockets of the runtime API", User, Ask(process::sockets)),
    row(&["show", "env"], "[var]", "the environment of the process", Operator, Ask(process::environment)),
    row(
        &["show", "errors"],
        "[<px>] [request|response]",
        "messages that were refused (none is kept)",
        Operator,
        Ask(process::errors),
    ),
    row(&["show", "info"], "[desc|json|typed|float]*", "how the process is", User, Ask(info::show)),
    row(&["show", "servers", "conn"], "[<backend>]", "connections of servers", User, Ask(servers::connections)),
    row(
        &["show", "servers", "state"],
        "[<backend>]",
        "states of servers, as a state file has them",
        User,
        Ask(servers::state),
    ),
    row(&["show", "startup-logs"], "", "what was said during the start", Operator, Ask(process::startup_logs)),
    row(&["show", "stat"], "[desc|json|no-maint|typed|up]*", "figures of proxies and servers", User, Ask(stat::show)),
    row(&["show", "version"], "", "the version of the process", User, Ask(info::version)),
    row(&["user"], "", "give up all but the rights of a user in this session", User, Own(own::user)),
    row(&["help"], "[<command>]", "the commands, or those that look like it", User, Own(own::help)),
    row(&["prompt"], "", "go on after each line, with a prompt; or stop that", User, Own(own::prompt)),
    row(&["quit"], "", "end this session", User, Own(own::quit)),
    hidden(&["_getsocks"], User, Take(give::sockets)),
    hidden(&["expert-mode"], Admin, Own(own::expert)),
    hidden(&["experimental-mode"], Admin, Own(own::experimental)),
];
