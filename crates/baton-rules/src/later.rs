//! Words HAProxy 2.6 knows and we do not yet: using one says so, instead of "unknown".

/// Sample fetches (configuration manual 7.3.2 to 7.3.6).
#[rustfmt::skip]
pub(crate) const FETCHES: &[&str] = &[
    "res.cache_hit", "res.cache_name", "res.comp",
    "res.comp_algo", "sc0_bytes_in_rate", "sc0_bytes_out_rate", "sc0_clr_gpc0", "sc0_clr_gpc1", "sc0_conn_cnt",
    "sc0_conn_cur", "sc0_conn_rate", "sc0_get_gpc0", "sc0_get_gpc1", "sc0_get_gpt0", "sc0_gpc0_rate", "sc0_gpc1_rate",
    "sc0_http_err_cnt", "sc0_http_err_rate", "sc0_http_fail_cnt", "sc0_http_fail_rate", "sc0_http_req_cnt",
    "sc0_http_req_rate", "sc0_inc_gpc0", "sc0_inc_gpc1", "sc0_kbytes_in", "sc0_kbytes_out", "sc0_sess_cnt",
    "sc0_sess_rate", "sc0_tracked", "sc0_trackers", "sc1_bytes_in_rate", "sc1_bytes_out_rate", "sc1_clr_gpc0",
    "sc1_clr_gpc1", "sc1_conn_cnt", "sc1_conn_cur", "sc1_conn_rate", "sc1_get_gpc0", "sc1_get_gpc1", "sc1_get_gpt0",
    "sc1_gpc0_rate", "sc1_gpc1_rate", "sc1_http_err_cnt", "sc1_http_err_rate", "sc1_http_fail_cnt",
    "sc1_http_fail_rate", "sc1_http_req_cnt", "sc1_http_req_rate", "sc1_inc_gpc0", "sc1_inc_gpc1", "sc1_kbytes_in",
    "sc1_kbytes_out", "sc1_sess_cnt", "sc1_sess_rate", "sc1_tracked", "sc1_trackers", "sc2_bytes_in_rate",
    "sc2_bytes_out_rate", "sc2_clr_gpc0", "sc2_clr_gpc1", "sc2_conn_cnt", "sc2_conn_cur", "sc2_conn_rate",
    "sc2_get_gpc0", "sc2_get_gpc1", "sc2_get_gpt0", "sc2_gpc0_rate", "sc2_gpc1_rate", "sc2_http_err_cnt",
    "sc2_http_err_rate", "sc2_http_fail_cnt", "sc2_http_fail_rate", "sc2_http_req_cnt", "sc2_http_req_rate",
    "sc2_inc_gpc0", "sc2_inc_gpc1", "sc2_kbytes_in", "sc2_kbytes_out", "sc2_sess_cnt", "sc2_sess_rate", "sc2_tracked",
    "sc2_trackers", "sc_bytes_in_rate", "sc_bytes_out_rate", "sc_clr_gpc", "sc_clr_gpc0", "sc_clr_gpc1",
    "sc_conn_cnt", "sc_conn_cur", "sc_conn_rate", "sc_get_gpc", "sc_get_gpc0", "sc_get_gpc1", "sc_get_gpt",
    "sc_get_gpt0", "sc_gpc0_rate", "sc_gpc1_rate", "sc_gpc_rate", "sc_http_err_cnt", "sc_http_err_rate",
    "sc_http_fail_cnt", "sc_http_fail_rate", "sc_http_req_cnt", "sc_http_req_rate", "sc_inc_gpc", "sc_inc_gpc0",
    "sc_inc_gpc1", "sc_kbytes_in", "sc_kbytes_out", "sc_sess_cnt", "sc_sess_rate", "sc_tracked", "sc_trackers",
    "ssl_fc_cipherlist_xxh",
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

/// Converters (7.3.1).
#[rustfmt::skip]
pub(crate) const CONVERTERS: &[&str] = &["debug", "wt6"];

/// How the names of what scripts in Lua register begin: fetches, converters, actions and services.
pub(crate) const LUA: &str = "lua.";

/// Actions of `http-request`, `http-response`, `http-after-response` and `tcp-request` (4.2).
#[rustfmt::skip]
pub(crate) const ACTIONS: &[&str] = &[
    "cache-store", "cache-use", "do-resolve",
    "lua", "ot-group", "sc-inc-gpc", "sc-inc-gpc0",
    "sc-inc-gpc1", "sc-set-gpt", "sc-set-gpt0", "send-spoe-group", "set-bandwidth-limit", 
    "track-sc", "track-sc0", "track-sc1", "track-sc2",
];
