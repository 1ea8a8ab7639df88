//! The commands of a process: one row each.

use std::sync::LazyLock;

use baton_model::AccessLevel;
use socket2::Socket;

use super::altering::{Altering, Staging};
use super::overridden::{self, FileWork};
use super::{
    Begun, absent, change_server, cookies, dynamic_server, errors, frontends, give, info, inside, patterns, peers,
    process, resolvers, schema, servers, sessions, ssl, stat, tables, variables, wait,
};
use crate::control::Control;
use crate::operators::answer::CommandResponse;
use crate::operators::row::{Row, hidden, row};
use crate::operators::sessions::SessionFilter;
use crate::operators::{Call, Commands, Given, Kind, Question, Rest, Session, events, own};
use crate::reload::Change as LiveChange;

/// What a command needs to be answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// Only its session.
    Own(fn(&mut Session, &Call) -> CommandResponse),
    /// Live state, which is looked at: answered on the thread of the change path.
    Ask(fn(&Control, &Call) -> CommandResponse),
    /// Live state, for an answer that may be long: it is made in pieces, between which others have their turn.
    Long(fn(&Control, &Call) -> Begun),
    /// Which sessions are to be listed.
    Sessions(fn(&Call) -> Result<SessionFilter, CommandResponse>),
    /// Something that is waited for: it is looked at now, and again later.
    Wait(fn(&Control, &Call, Option<Rest>) -> Given),
    /// What is staged for a `commit` later: no live state.
    Stage(fn(&mut Staging<'_>, &Call) -> CommandResponse),
    /// Live state, which is altered: a change goes down the change path, once it is clear who serves. `Err`: there is nothing to change.
    Change(fn(&mut Staging<'_>, &Call) -> Result<Altering, CommandResponse>),
    /// A file, which may take its time: it is written on another thread, and the reply waits for it. `Err`: there is nothing to write.
    Write(fn(&Control, &Call) -> Result<FileWork, CommandResponse>),
    /// The connection itself, on which something else is spoken from then on.
    Take(fn(&mut Control, Socket)),
}

/// The commands as sessions know them.
pub fn commands() -> Commands {
    static KNOWN: LazyLock<Vec<Row<Kind>>> = LazyLock::new(|| ROWS.iter().map(known).collect());
    Commands(&KNOWN)
}

fn known(row: &Row<Act>) -> Row<Kind> {
    let act = match row.act {
        Act::Own(act) => Kind::Own(act),
        Act::Ask(_)
        | Act::Long(_)
        | Act::Sessions(_)
        | Act::Wait(_)
        | Act::Stage(_)
        | Act::Change(_)
        | Act::Write(_) => Kind::Asked,
        Act::Take(_) => Kind::Takes,
    };
    Row { words: row.words, args: row.args, help: row.help, level: row.level, act }
}

/// What a question asks for: its place is one of [`commands`].
pub(super) fn act_of(question: &Question) -> Act {
    ROWS[question.row].act
}

/// `clear counters [all]`: the maxima, for an operator; the counters too, for an admin.
fn counters(_: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let all = call.arg(0) == "all";
    match all && call.level < Admin {
        true => Err(CommandResponse::error("Permission denied")),
        false => Ok(LiveChange::CountersCleared { all }.into()),
    }
}

use AccessLevel::{Admin, Operator, User};
use Act::{Ask, Change, Long, Own, Sessions, Stage, Take, Wait, Write};

/// All commands, in the order of the help.
pub(super) static ROWS: &[Row<Act>] = &[
    row(
        &["abort", "ssl", "ca-file"],
        "<cafile>",
        "discard the pending change of a CA file",
        Admin,
        Stage(|staging, call| ssl::abort(staging, call, &ssl::AUTHORITIES)),
    ),
    row(
        &["abort", "ssl", "cert"],
        "<certfile>",
        "discard the pending change of a certificate",
        Admin,
        Stage(ssl::certificate::abort),
    ),
    row(
        &["abort", "ssl", "crl-file"],
        "<crlfile>",
        "discard the pending change of a CRL file",
        Admin,
        Stage(|staging, call| ssl::abort(staging, call, &ssl::REVOCATIONS)),
    ),
    row(&["add", "acl"], "[@<ver>] <acl> <pattern>", "add a pattern to an ACL file", User, Change(patterns::add)),
    row(&["add", "map"], "[@<ver>] <map> <key> <value>", "add a line to a map", User, Change(patterns::add)),
    row(
        &["add", "server"],
        "<bk>/<srv> <addr> [args]*",
        "add a server, in maintenance and without health checks",
        Admin,
        Change(dynamic_server::add),
    ),
    row(
        &["add", "ssl", "crt-list"],
        "<list> <cert|payload>",
        "add a certificate to a crt-list or directory",
        Admin,
        Change(ssl::list::add),
    ),
    row(&["clear", "acl"], "[@<ver>] <acl>", "empty an ACL file", User, Change(patterns::clear)),
    row(&["clear", "counters"], "[all]", "reset the maxima, or all counters", Operator, Change(counters)),
    row(&["clear", "map"], "[@<ver>] <map>", "empty a map", User, Change(patterns::clear)),
    row(&["clear", "table"], "<table> [<filter>]*", "remove entries of a stick table", User, Long(tables::clear)),
    row(&["commit", "acl"], "@<version> <acl>", "use a version of an ACL file", User, Change(patterns::commit)),
    row(&["commit", "map"], "@<version> <map>", "use a version of a map", User, Change(patterns::commit)),
    row(
        &["clear", "overrides"],
        "[<bk>/<srv>|<fe>|global [<field>]]",
        "drop settings made at run time: the values of the file apply again",
        Admin,
        Change(overridden::clear),
    ),
    row(
        &["commit", "ssl", "ca-file"],
        "<cafile>",
        "apply the pending change of a CA file",
        Admin,
        Change(|staging, call| ssl::commit(staging, call, &ssl::AUTHORITIES)),
    ),
    row(
        &["commit", "ssl", "cert"],
        "<certfile>",
        "apply the pending change of a certificate",
        Admin,
        Change(ssl::certificate::commit),
    ),
    row(
        &["commit", "ssl", "crl-file"],
        "<crlfile>",
        "apply the pending change of a CRL file",
        Admin,
        Change(|staging, call| ssl::commit(staging, call, &ssl::REVOCATIONS)),
    ),
    row(&["del", "acl"], "<acl> [<pattern>|#<ref>]", "remove a pattern of an ACL file", User, Change(patterns::delete)),
    row(&["del", "map"], "<map> [<key>|#<ref>]", "remove a line of a map", User, Change(patterns::delete)),
    row(
        &["del", "server"],
        "<bk>/<srv>",
        "delete a server that is in maintenance and without connections",
        Admin,
        Change(dynamic_server::delete),
    ),
    row(
        &["del", "ssl", "ca-file"],
        "<cafile>",
        "delete an unused CA file",
        Admin,
        Change(|staging, call| ssl::delete(staging, call, &ssl::AUTHORITIES)),
    ),
    row(&["del", "ssl", "cert"], "<certfile>", "delete an unused certificate", Admin, Change(ssl::certificate::delete)),
    row(
        &["del", "ssl", "crl-file"],
        "<crlfile>",
        "delete an unused CRL file",
        Admin,
        Change(|staging, call| ssl::delete(staging, call, &ssl::REVOCATIONS)),
    ),
    row(
        &["del", "ssl", "crt-list"],
        "<list> <cert>[:<line>]",
        "remove a certificate from a crt-list or directory",
        Admin,
        Change(ssl::list::delete),
    ),
    row(
        &["disable", "agent"],
        "<bk>/<srv>",
        "stop the agent checks of a server",
        Admin,
        Change(change_server::disable_agent),
    ),
    row(
        &["disable", "dynamic-cookie", "backend"],
        "<bk>",
        "give servers of a backend no dynamic cookies",
        Admin,
        Change(cookies::disable),
    ),
    row(
        &["disable", "frontend"],
        "<frontend>",
        "close a frontend to new clients for a while",
        Admin,
        Change(frontends::disable),
    ),
    row(
        &["disable", "health"],
        "<bk>/<srv>",
        "stop the health checks of a server",
        Admin,
        Change(dynamic_server::disable_health),
    ),
    row(&["disable", "server"], "<bk>/<srv>", "put a server into maintenance", Admin, Change(change_server::disable)),
    row(
        &["dump", "ssl", "cert"],
        "<certfile>",
        "a certificate as a file, with its private key",
        Admin,
        Ask(ssl::certificate::dump),
    ),
    row(
        &["enable", "agent"],
        "<bk>/<srv>",
        "start the agent checks of a server",
        Admin,
        Change(change_server::enable_agent),
    ),
    row(
        &["enable", "dynamic-cookie", "backend"],
        "<bk>",
        "give servers of a backend dynamic cookies",
        Admin,
        Change(cookies::enable),
    ),
    row(&["enable", "frontend"], "<frontend>", "open a disabled frontend again", Admin, Change(frontends::enable)),
    row(
        &["enable", "health"],
        "<bk>/<srv>",
        "start the health checks of a server",
        Admin,
        Change(dynamic_server::enable_health),
    ),
    row(&["enable", "server"], "<bk>/<srv>", "take a server out of maintenance", Admin, Change(change_server::enable)),
    row(&["get", "acl"], "<acl> <value>", "the patterns of an ACL file that match", User, Ask(patterns::get)),
    row(&["get", "map"], "<map> <value>", "the lines of a map that match", User, Ask(patterns::get)),
    row(&["get", "var"], "<name>", "the value of a variable of the process", Operator, Ask(variables::get)),
    row(&["get", "weight"], "<bk>/<srv>", "the weight of a server, now and as configured", User, Ask(servers::weight)),
    row(
        &["new", "ssl", "ca-file"],
        "<cafile>",
        "a new CA file, to be named in a crt-list",
        Admin,
        Stage(|staging, call| ssl::create(staging, call, &ssl::AUTHORITIES)),
    ),
    row(
        &["new", "ssl", "cert"],
        "<certfile>",
        "a new certificate, to be added to a crt-list or directory",
        Admin,
        Stage(ssl::certificate::create),
    ),
    row(
        &["new", "ssl", "crl-file"],
        "<crlfile>",
        "a new CRL file, to be named in a crt-list",
        Admin,
        Stage(|staging, call| ssl::create(staging, call, &ssl::REVOCATIONS)),
    ),
    row(&["operator"], "", "drop the rights of an admin in this session", User, Own(own::operator)),
    row(&["prepare", "acl"], "<acl>", "begin a version of an ACL file", User, Change(patterns::prepare)),
    row(&["prepare", "map"], "<map>", "begin a version of a map", User, Change(patterns::prepare)),
    row(
        &["set", "dynamic-cookie-key", "backend"],
        "<bk> <key>",
        "set the key of dynamic cookies",
        Admin,
        Change(cookies::set_key),
    ),
    row(
        &["set", "map"],
        "<map> [<key>|#<ref>] <value>",
        "set the value of a line of a map",
        User,
        Change(patterns::set),
    ),
    row(
        &["set", "maxconn", "frontend"],
        "<frontend> <value>",
        "set the limit of connections of a frontend",
        Admin,
        Change(frontends::set_maxconn),
    ),
    row(
        &["set", "maxconn", "global"],
        "<value>",
        "set the limit of connections of the process",
        Admin,
        Change(frontends::set_maxconn_global),
    ),
    row(
        &["set", "maxconn", "server"],
        "<bk>/<srv> <value>",
        "set the limit of connections of a server",
        Admin,
        Change(change_server::set_maxconn),
    ),
    row(&["set", "profiling"], "<what> on|off", "there is none", Admin, Ask(inside::set_profiling)),
    row(
        &["set", "rate-limit"],
        "<limit> global <value>",
        "set a limit of the process per second",
        Admin,
        Change(frontends::set_rate_limit),
    ),
    row(
        &["save", "overrides"],
        "[<file>]",
        "settings made at run time as lines of haproxy.cfg",
        Admin,
        Write(overridden::save),
    ),
    row(
        &["set", "server"],
        "<bk>/<srv> <what> <value>",
        "set the state, weight, address, checks or health of a server",
        Admin,
        Change(change_server::set),
    ),
    row(
        &["set", "severity-output"],
        "[none|number|string]",
        "put a severity before messages",
        User,
        Own(own::severity),
    ),
    row(
        &["set", "ssl", "ca-file"],
        "<cafile> <payload>",
        "set the content of a CA file, until commit",
        Admin,
        Stage(|staging, call| ssl::set(staging, call, &ssl::AUTHORITIES)),
    ),
    row(
        &["set", "ssl", "cert"],
        "<certfile> <payload>",
        "set a certificate or a part of it, until commit",
        Admin,
        Stage(ssl::certificate::set),
    ),
    row(
        &["set", "ssl", "crl-file"],
        "<crlfile> <payload>",
        "set the content of a CRL file, until commit",
        Admin,
        Stage(|staging, call| ssl::set(staging, call, &ssl::REVOCATIONS)),
    ),
    row(
        &["set", "ssl", "ocsp-response"],
        "<response|payload>",
        "set an OCSP response, in base64",
        Admin,
        Change(ssl::ocsp::set),
    ),
    row(
        &["set", "ssl", "tls-key"],
        "[id|file] <key>",
        "add a key of session tickets",
        Admin,
        Change(ssl::tickets::set),
    ),
    row(
        &["set", "table"],
        "<table> key <key> [data.* <value>]*",
        "set an entry of a stick table",
        User,
        Ask(tables::set),
    ),
    row(&["set", "timeout"], "[cli] <delay>", "idle timeout of this session (s)", User, Own(own::timeout)),
    row(
        &["set", "var"],
        "<name> [expr] <expression>|fmt <format>",
        "set a variable of the process (experimental-mode)",
        // It is looked at after the mode, as by HAProxy.
        User,
        Change(variables::set),
    ),
    row(
        &["set", "weight"],
        "<bk>/<srv> <weight>[%]",
        "set the weight of a server",
        Admin,
        Change(change_server::set_weight),
    ),
    row(&["show", "acl"], "[[@<ver>] <acl>]", "the ACLs, or the patterns of one", User, Long(patterns::show)),
    row(&["show", "activity"], "", "figures of the threads", User, Ask(inside::activity)),
    row(&["show", "backend"], "", "the names of all backends", User, Ask(process::backends)),
    row(&["show", "cache"], "", "the caches", Admin, Ask(absent::caches)),
    row(&["show", "cli", "level"], "", "access level of this session", User, Own(own::show_level)),
    row(&["show", "cli", "sockets"], "", "the sockets of the runtime API", User, Ask(process::sockets)),
    row(&["show", "env"], "[var]", "the environment of the process", Operator, Ask(process::environment)),
    row(
        &["show", "errors"],
        "[<px>] [request|response]",
        "the last malformed messages of proxies",
        Operator,
        Long(errors::show),
    ),
    row(&["show", "events"], "[<ring>] [-w] [-n]", "rings of log lines, or the lines of one", User, Own(events::show)),
    row(&["show", "fd"], "[<number>]", "open descriptors", Operator, Long(inside::descriptors)),
    row(&["show", "info"], "[desc|json|typed|float]*", "information about the process", User, Ask(info::show)),
    row(&["show", "libs"], "", "the program and its libraries", Operator, Ask(inside::libraries)),
    row(&["show", "map"], "[[@<ver>] <map>]", "the maps, or the lines of one", User, Long(patterns::show)),
    row(&["show", "overrides"], "[json]", "settings made at run time", Operator, Ask(overridden::show)),
    row(
        &["show", "peers"],
        "[dict|-] [<section>]",
        "the peers, and what they have of stick tables",
        User,
        Wait(peers::show),
    ),
    row(&["show", "pools"], "", "memory in use", User, Ask(inside::pools)),
    row(&["show", "profiling"], "[<what>|<lines>]*", "there is none", Admin, Ask(inside::profiling)),
    row(&["show", "resolvers"], "[<section>]", "the resolvers", User, Ask(resolvers::show)),
    row(&["show", "schema", "json"], "", "the schema of JSON output", User, Ask(schema::show)),
    row(&["show", "servers", "conn"], "[<backend>]", "connections of servers", User, Long(servers::connections)),
    row(
        &["show", "servers", "state"],
        "[<backend>]",
        "states of servers, in the format of a state file",
        User,
        Long(servers::state),
    ),
    row(
        &["show", "sess"],
        "[all|older <age>|<id>]",
        "the sessions of clients, or the details of one",
        Operator,
        Sessions(sessions::show),
    ),
    row(
        &["show", "ssl", "ca-file"],
        "[<cafile>[:<index>]]",
        "the CA files, or the content of one",
        Operator,
        Ask(|control, call| ssl::show(control, call, &ssl::AUTHORITIES)),
    ),
    row(
        &["show", "ssl", "cert"],
        "[<certfile>]",
        "the certificates, or the details of one",
        Operator,
        Ask(ssl::certificate::show),
    ),
    row(
        &["show", "ssl", "crl-file"],
        "[<crlfile>[:<index>]]",
        "the CRL files, or the content of one",
        Operator,
        Ask(|control, call| ssl::show(control, call, &ssl::REVOCATIONS)),
    ),
    row(
        &["show", "ssl", "crt-list"],
        "[-n] [<list>]",
        "the crt-lists and directories, or the content of one",
        Admin,
        Ask(ssl::list::show),
    ),
    row(
        &["show", "ssl", "ocsp-response"],
        "[id]",
        "the OCSP responses, or the details of one",
        User,
        Ask(ssl::ocsp::show),
    ),
    row(&["show", "ssl", "providers"], "", "the cryptographic library", User, Ask(ssl::providers)),
    row(&["show", "startup-logs"], "", "messages of the start", Operator, Ask(process::startup_logs)),
    row(
        &["show", "stat"],
        "[desc|json|no-maint|typed|up]*",
        "statistics of proxies and servers",
        User,
        Long(stat::show),
    ),
    row(
        &["show", "table"],
        "[<table> [<filter>]*]",
        "the stick tables, or the entries of one",
        User,
        Long(tables::show),
    ),
    row(&["show", "threads"], "", "the threads", User, Ask(inside::threads)),
    row(
        &["show", "tls-keys"],
        "[id|*]",
        "files of ticket keys, or the keys (for an admin)",
        User,
        Ask(ssl::tickets::show),
    ),
    row(&["show", "version"], "", "the version of the process", User, Ask(info::version)),
    row(
        &["shutdown", "frontend"],
        "<frontend>",
        "close a frontend to new clients until the next reload",
        Admin,
        Change(frontends::shut_down),
    ),
    row(&["shutdown", "session"], "<id>", "end a session", Admin, Change(sessions::shut_down)),
    row(
        &["shutdown", "sessions", "server"],
        "<bk>/<srv>",
        "end the sessions of a server",
        Admin,
        Change(sessions::shut_down_of_server),
    ),
    row(&["user"], "", "drop to the rights of a user in this session", User, Own(own::user)),
    row(&["wait"], "<delay> [<condition>]", "wait, or until a condition holds", User, Wait(wait::wait)),
    row(&["help"], "[<command>]", "all commands, or the similar ones", User, Own(own::help)),
    row(&["prompt"], "", "switch interactive mode with a prompt on or off", User, Own(own::prompt)),
    row(&["quit"], "", "end this session", User, Own(own::quit)),
    hidden(&["_getsocks"], User, Take(give::sockets)),
    hidden(&["expert-mode"], Admin, Own(own::expert)),
    hidden(&["experimental-mode"], Admin, Own(own::experimental)),
];
