//! Numbers of `include/uapi/linux/netfilter/nf_tables.h` that the `libc` crate does not have: kinds of attributes.

/// Attributes of a table (`NFTA_TABLE_…`).
pub(super) mod table {
    pub const NAME: u16 = 1;
    pub const FLAGS: u16 = 2;
}

/// Attributes of a chain (`NFTA_CHAIN_…`), and of its hook (`NFTA_HOOK_…`).
pub(super) mod chain {
    pub const TABLE: u16 = 1;
    pub const NAME: u16 = 3;
    pub const HOOK: u16 = 4;
    pub const TYPE: u16 = 7;
    pub const HOOK_NUMBER: u16 = 1;
    pub const HOOK_PRIORITY: u16 = 2;
}

/// Attributes of a rule (`NFTA_RULE_…`), and those that every list has (`NFTA_LIST_ELEM`).
pub(super) mod rule {
    pub const TABLE: u16 = 1;
    pub const CHAIN: u16 = 2;
    pub const HANDLE: u16 = 3;
    pub const EXPRESSIONS: u16 = 4;
    pub const USER_DATA: u16 = 7;
    pub const LIST_ELEMENT: u16 = 1;
}

/// Attributes of an expression (`NFTA_EXPR_…`), and of a counter (`NFTA_COUNTER_…`).
pub(super) mod expression {
    pub const NAME: u16 = 1;
    pub const DATA: u16 = 2;
    pub const COUNTER_PACKETS: u16 = 2;
}

/// Attributes of a set (`NFTA_SET_…`), of lists of its elements (`NFTA_SET_ELEM_LIST_…`), and of elements (`NFTA_SET_ELEM_…`).
pub(super) mod set {
    pub const TABLE: u16 = 1;
    pub const NAME: u16 = 2;
    pub const FLAGS: u16 = 3;
    pub const KEY_TYPE: u16 = 4;
    pub const KEY_LENGTH: u16 = 5;
    pub const DATA_TYPE: u16 = 6;
    pub const DATA_LENGTH: u16 = 7;
    pub const ID: u16 = 10;
    pub const LIST_TABLE: u16 = 1;
    pub const LIST_SET: u16 = 2;
    pub const LIST_ELEMENTS: u16 = 3;
    pub const ELEMENT_KEY: u16 = 1;
    pub const ELEMENT_DATA: u16 = 2;
    pub const ELEMENT_FLAGS: u16 = 3;
    pub const ELEMENT_TIMEOUT: u16 = 4;
    pub const ELEMENT_EXPIRATION: u16 = 5;
    /// `NFT_SET_ELEM_INTERVAL_END`: this key is the first one after an interval.
    pub const INTERVAL_END: u32 = 1;
}

/// Attributes of values (`NFTA_DATA_…`, `NFTA_VERDICT_…`).
pub(super) mod data {
    pub const VALUE: u16 = 1;
    pub const VERDICT: u16 = 2;
    pub const VERDICT_CODE: u16 = 1;
}
