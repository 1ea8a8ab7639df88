//! Words HAProxy 2.6 knows and we do not yet: using one says so, instead of "unknown".

/// Sample fetches (configuration manual 7.3.2 to 7.3.6).
#[rustfmt::skip]
pub(crate) const FETCHES: &[&str] = &[
    "res.cache_hit", "res.cache_name", "res.comp", "res.comp_algo",
];

/// Sample fetches of HAProxy that will not come: what they give, the TLS library keeps to itself.
#[rustfmt::skip]
pub(crate) const KEPT_SECRET: &[&str] = &[
    "ssl_bc_client_random", "ssl_bc_server_random", "ssl_bc_session_id", "ssl_bc_session_key", "ssl_bc_unique_id",
    "ssl_fc_client_early_traffic_secret", "ssl_fc_client_handshake_traffic_secret", "ssl_fc_client_random",
    "ssl_fc_client_traffic_secret_0", "ssl_fc_early_exporter_secret", "ssl_fc_exporter_secret",
    "ssl_fc_server_handshake_traffic_secret", "ssl_fc_server_random", "ssl_fc_server_traffic_secret_0",
    "ssl_fc_session_id", "ssl_fc_session_key", "ssl_fc_unique_id",
];

/// Sample fetches of HAProxy that will not come, by what their names begin with: why, and what to use instead.
pub(crate) const NOT_OURS: &[(&str, &str, &str)] = &[
    (
        "internal.",
        "it shows how HAProxy keeps a message in memory, which is not how Baton does",
        "use req.hdrs, req.body and their counterparts",
    ),
    ("cpu_", "requests of Baton have no task of their own whose time could be measured", "use the timers of log lines"),
    ("lat_", "requests of Baton have no task of their own whose time could be measured", "use the timers of log lines"),
];

/// A converter of HAProxy that will not come: its name, why, and what to use instead.
pub(crate) const NOT_OURS_CONVERTER: (&str, &str, &str) =
    ("wt6", "its function is described in HAProxy's source only", "use xxh32, crc32, djb2 or sdbm");

/// How the names of what scripts in Lua register begin: fetches, converters, actions and services.
pub(crate) const LUA: &str = "lua.";

/// Actions of `http-request`, `http-response`, `http-after-response` and `tcp-request` (4.2).
#[rustfmt::skip]
pub(crate) const ACTIONS: &[&str] = &[
    "cache-store", "cache-use", "lua", "ot-group", "send-spoe-group", "set-bandwidth-limit",
];
