//! The parts of the exposition, in their order.

use crate::runtime::stat::ObjectKind;

/// A part, which a scrape can ask for alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// The process: the lines of `show info`.
    Process,
    /// A kind of objects: the lines of `show stat`.
    Objects(ObjectKind),
    /// Stick tables.
    Tables,
    /// What HAProxy does not have.
    Own,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 7] = [
        Part::Process,
        Part::Objects(ObjectKind::Frontend),
        Part::Objects(ObjectKind::Listener),
        Part::Objects(ObjectKind::Backend),
        Part::Objects(ObjectKind::Server),
        Part::Tables,
        Part::Own,
    ];

    /// What a query calls it.
    pub fn scope(self) -> &'static str {
        match self {
            Part::Process => "global",
            Part::Objects(ObjectKind::Frontend) => "frontend",
            Part::Objects(ObjectKind::Listener) => "listener",
            Part::Objects(ObjectKind::Backend) => "backend",
            Part::Objects(ObjectKind::Server) => "server",
            Part::Tables => "sticktable",
            Part::Own => "baton",
        }
    }

    /// What stands in front of its metrics' names.
    pub fn prefix(self) -> &'static str {
        match self {
            Part::Process => "haproxy_process_",
            Part::Objects(ObjectKind::Frontend) => "haproxy_frontend_",
            Part::Objects(ObjectKind::Listener) => "haproxy_listener_",
            Part::Objects(ObjectKind::Backend) => "haproxy_backend_",
            Part::Objects(ObjectKind::Server) => "haproxy_server_",
            Part::Tables => "haproxy_sticktable_",
            Part::Own => "baton_",
        }
    }
}
