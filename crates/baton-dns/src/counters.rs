//! What is counted of a name server, in the order and by the names of `show resolvers`.

/// Queries and responses of a name server. Responses are counted once each, by what they are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NameServerCounters {
    /// Queries.
    pub sent: u64,
    /// Queries that could not be sent.
    pub send_errors: u64,
    /// Valid responses that were used.
    pub valid: u64,
    /// Responses that changed a server's address.
    pub updates: u64,
    /// Responses that are an alias and nothing else.
    pub cname_errors: u64,
    /// Responses without any record of the type.
    pub empty: u64,
    /// Names that do not exist.
    pub nx: u64,
    /// Queries without a response in time.
    pub timeouts: u64,
    /// Queries that it refused.
    pub refused: u64,
    /// Other errors that it reported.
    pub other: u64,
    /// Responses that are malformed, or to another question.
    pub invalid: u64,
    /// Responses that are longer than accepted.
    pub too_big: u64,
    /// Responses that did not fit into a datagram; they were asked for again by TCP.
    pub truncated: u64,
    /// Responses that came after a valid one of another name server, or too late, or of an id that nobody waits for, as in HAProxy.
    pub outdated: u64,
}

impl NameServerCounters {
    /// All of them by name, in the order of HAProxy. It names responses with aliases too, and counts none.
    pub fn named(&self) -> [(&'static str, u64); 15] {
        [
            ("sent", self.sent),
            ("snd_error", self.send_errors),
            ("valid", self.valid),
            ("update", self.updates),
            ("cname", 0),
            ("cname_error", self.cname_errors),
            ("any_err", self.empty),
            ("nx", self.nx),
            ("timeout", self.timeouts),
            ("refused", self.refused),
            ("other", self.other),
            ("invalid", self.invalid),
            ("too_big", self.too_big),
            ("truncated", self.truncated),
            ("outdated", self.outdated),
        ]
    }
}
