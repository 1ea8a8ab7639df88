//! Sample fetches: one row each. To add one, write its function and its row.

pub(crate) mod auth;
mod capture;
mod connection;
mod hello;
mod http;
mod internal;
mod payload;
mod response;
mod states;
mod table;
mod tls;
mod tracked;
mod whole;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::args::{Arg, Check, Value};
use crate::context::Context;
use crate::place::FetchNeeds;
use crate::sample::{Sample, Type};

pub use payload::rdp_server;

/// Takes one sample; for a name with several values, the one HAProxy takes outside of ACLs.
pub(crate) type FetchFn = for<'c> fn(&'c Context<'_>, &'c [Value]) -> Option<Sample<'c>>;

/// Hands each value to the function until it says true; gives whether it did.
pub(crate) type Each = for<'c> fn(&'c Context<'_>, &'c [Value], &mut dyn FnMut(Sample<'c>) -> bool) -> bool;

/// A row.
pub(crate) struct Fetch {
    /// Its names; the first one is the manual's.
    pub names: &'static [&'static str],
    pub args: &'static [Arg],
    pub gives: Type,
    /// What must be there.
    pub needs: FetchNeeds,
    /// Checks the arguments further and may replace them.
    pub check: Option<Check>,
    pub eval: FetchFn,
    /// For ACLs: all values of a name.
    pub each: Option<Each>,
    /// What it gives, for help and manual.
    pub doc: &'static str,
}

impl Fetch {
    const fn new(
        names: &'static [&'static str],
        gives: Type,
        needs: FetchNeeds,
        eval: FetchFn,
        doc: &'static str,
    ) -> Fetch {
        Fetch { names, args: &[], gives, needs, check: None, eval, each: None, doc }
    }

    const fn args(mut self, args: &'static [Arg]) -> Fetch {
        self.args = args;
        self
    }

    const fn each(mut self, each: Each) -> Fetch {
        self.each = Some(each);
        self
    }

    const fn check(mut self, check: Check) -> Fetch {
        self.check = Some(check);
        self
    }

    /// Whether it can be used without a connection, as by HAProxy 2.6 while it reads the file.
    pub fn is_of_process(&self) -> bool {
        const NAMES: [&str; 19] = [
            "always_false",
            "always_true",
            "bin",
            "bool",
            "date",
            "date_us",
            "env",
            "hostname",
            "int",
            "ipv4",
            "ipv6",
            "meth",
            "nbproc",
            "proc",
            "rand",
            "str",
            "thread",
            "uuid",
            "var",
        ];
        NAMES.contains(&self.names[0])
    }

    /// Whether a command of the runtime API can use it: what the process and its proxies are in at that moment. HAProxy 2.6 also accepts what is of a
    /// request (`unique-id`, `prio_class`, `sc0_conn_cnt`), which has no value there or ends the process.
    pub fn is_of_command(&self) -> bool {
        const NAMES: [&str; 24] = [
            "avg_queue",
            "be_conn",
            "be_conn_free",
            "be_sess_rate",
            "connslots",
            "fe_conn",
            "fe_req_rate",
            "fe_sess_rate",
            "last_rule_file",
            "last_rule_line",
            "nbsrv",
            "queue",
            "srv_conn",
            "srv_conn_free",
            "srv_is_up",
            "srv_iweight",
            "srv_queue",
            "srv_sess_rate",
            "srv_uweight",
            "srv_weight",
            "stopping",
            "table_avl",
            "table_cnt",
            "wait_end",
        ];
        self.is_of_process() || NAMES.contains(&self.names[0])
    }
}

const TABLES: [&[Fetch]; 15] = [
    auth::ROWS,
    capture::ROWS,
    internal::ROWS,
    states::ROWS,
    table::ROWS,
    connection::ROWS,
    hello::ROWS,
    tls::ROWS,
    http::ROWS,
    response::ROWS,
    payload::ROWS,
    whole::ROWS,
    tracked::ROWS[0],
    tracked::ROWS[1],
    tracked::ROWS[2],
];

/// The row of a name.
pub(crate) fn find(name: &str) -> Option<&'static Fetch> {
    static INDEX: LazyLock<HashMap<&'static str, &'static Fetch>> =
        LazyLock::new(|| rows().flat_map(|row| row.names.iter().map(move |&name| (name, row))).collect());
    INDEX.get(name).copied()
}

/// All rows.
pub(crate) fn rows() -> impl Iterator<Item = &'static Fetch> {
    TABLES.iter().flat_map(|table| table.iter())
}

/// All names, those of the derived ACL criteria not included.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    rows().flat_map(|row| row.names.iter().copied())
}

/// [`find`] looks names up in an index, where the last of two would hide the first.
#[cfg(test)]
#[test]
fn each_name_is_one_row() {
    let all: Vec<&str> = names().collect();
    let different: std::collections::HashSet<&str> = all.iter().copied().collect();
    assert_eq!(all.len(), different.len());
    assert!(all.iter().all(|name| find(name).is_some_and(|row| row.names.contains(name))));
    assert!(find("no_such_fetch").is_none());
}
