//! The columns of `show stat`, in HAProxy 2.6's order (management guide, 9.1): the first hundred have fixed places.

use crate::runtime::field::Field;

/// Makes the list of columns and their positions from one table.
macro_rules! columns {
    ($($column:ident, $name:literal, $tag:literal, $doc:literal;)*) => {
        /// A column, by its position.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[expect(dead_code, reason = "a column without a value here keeps its place all the same")]
        pub enum Column {
            $($column,)*
        }

        /// All columns, in order.
        pub static COLUMNS: &[Field] = &[$(Field { name: $name, tag: $tag, doc: $doc },)*];
    };
}

/// Position of the first column that has no fixed place: a `-` stands before it in the table.
pub const FIXED: usize = Column::SslSess as usize;

columns! {
    Pxname, "pxname", "KNS", "Name of the proxy";
    Svname, "svname", "KNS", "FRONTEND, BACKEND, or the name of a server or socket";
    Qcur, "qcur", "MGP", "Requests waiting now";
    Qmax, "qmax", "MMP", "The most that waited at once";
    Scur, "scur", "MGP", "Sessions now";
    Smax, "smax", "MMP", "The most sessions at once";
    Slim, "slim", "CLP", "Limit of sessions";
    Stot, "stot", "MCP", "Sessions since the start";
    Bin, "bin", "MCP", "Bytes from clients";
    Bout, "bout", "MCP", "Bytes to clients";
    Dreq, "dreq", "MCP", "Requests that a rule denied";
    Dresp, "dresp", "MCP", "Responses that a rule denied";
    Ereq, "ereq", "MCP", "Requests that were no requests";
    Econ, "econ", "MCP", "Connections to servers that failed";
    Eresp, "eresp", "MCP", "Responses that failed";
    Wretr, "wretr", "MCP", "Connections to servers that were tried again";
    Wredis, "wredis", "MCP", "Requests that went to another server than wanted";
    Status, "status", "SGP", "What it does";
    Weight, "weight", "MaP", "Weight in use";
    Act, "act", "MGP", "Active servers in use; of a server, 1 if it is active";
    Bck, "bck", "MGP", "Backup servers in use; of a server, 1 if it is a backup";
    Chkfail, "chkfail", "MCP", "Checks that failed while it was up";
    Chkdown, "chkdown", "MCP", "Times it went down";
    Lastchg, "lastchg", "MAP", "Seconds since it last went up or down";
    Downtime, "downtime", "MCP", "Seconds it was down in all";
    Qlimit, "qlimit", "CGS", "The most that may wait for it";
    Pid, "pid", "KGP", "Number of the process: one";
    Iid, "iid", "KGS", "Number of the proxy";
    Sid, "sid", "KGS", "Number of the server or socket in its proxy";
    Throttle, "throttle", "MaP", "Share of its weight in slow start, percent";
    Lbtot, "lbtot", "MCP", "Times it was chosen";
    Tracked, "tracked", "CNS", "The server whose state it follows";
    Type, "type", "CGS", "0 frontend, 1 backend, 2 server, 3 socket";
    Rate, "rate", "MRP", "Sessions in the last second";
    RateLim, "rate_lim", "CLP", "Limit of sessions a second";
    RateMax, "rate_max", "MMP", "The most sessions in a second";
    CheckStatus, "check_status", "MOP", "How the last check ended";
    CheckCode, "check_code", "MOP", "Status code of the last check";
    CheckDuration, "check_duration", "MDP", "How long the last check took, ms";
    Hrsp1xx, "hrsp_1xx", "MCP", "Responses 100 to 199";
    Hrsp2xx, "hrsp_2xx", "MCP", "Responses 200 to 299";
    Hrsp3xx, "hrsp_3xx", "MCP", "Responses 300 to 399";
    Hrsp4xx, "hrsp_4xx", "MCP", "Responses 400 to 499";
    Hrsp5xx, "hrsp_5xx", "MCP", "Responses 500 to 599";
    HrspOther, "hrsp_other", "MCP", "Responses with other codes";
    Hanafail, "hanafail", "MCP", "Errors of traffic that counted as failed checks";
    ReqRate, "req_rate", "MRP", "Requests in the last second";
    ReqRateMax, "req_rate_max", "MMP", "The most requests in a second";
    ReqTot, "req_tot", "MCP", "Requests since the start";
    CliAbrt, "cli_abrt", "MCP", "Transfers given up by the client";
    SrvAbrt, "srv_abrt", "MCP", "Transfers given up by the server";
    CompIn, "comp_in", "MCP", "Bytes to be compressed";
    CompOut, "comp_out", "MCP", "Bytes compressed";
    CompByp, "comp_byp", "MCP", "Bytes not compressed for lack of time";
    CompRsp, "comp_rsp", "MCP", "Responses compressed";
    Lastsess, "lastsess", "MAP", "Seconds since the last session; -1 without one";
    LastChk, "last_chk", "MOP", "What the last check found";
    LastAgt, "last_agt", "MOP", "What the last agent check found";
    Qtime, "qtime", "MaP", "Time in queues, average of the last requests, ms";
    Ctime, "ctime", "MaP", "Time to connect, average of the last requests, ms";
    Rtime, "rtime", "MaP", "Time to respond, average of the last requests, ms";
    Ttime, "ttime", "MaP", "Time in all, average of the last requests, ms";
    AgentStatus, "agent_status", "MOP", "How the last agent check ended";
    AgentCode, "agent_code", "MOP", "Code of the last agent check";
    AgentDuration, "agent_duration", "MDP", "How long the last agent check took, ms";
    CheckDesc, "check_desc", "MOP", "How the last check ended, in words";
    AgentDesc, "agent_desc", "MOP", "How the last agent check ended, in words";
    CheckRise, "check_rise", "CGS", "Good checks in a row before it is up";
    CheckFall, "check_fall", "CGS", "Bad checks in a row before it is down";
    CheckHealth, "check_health", "CGS", "Counter of checks: up from check_rise on";
    AgentRise, "agent_rise", "CGS", "The same of the agent";
    AgentFall, "agent_fall", "CGS", "The same of the agent";
    AgentHealth, "agent_health", "CGS", "The same of the agent";
    Addr, "addr", "CGS", "Address and port, or unix";
    Cookie, "cookie", "CNS", "Value of a server's cookie, name of a backend's";
    Mode, "mode", "CGS", "Mode of the proxy";
    Algo, "algo", "CGS", "How servers are chosen";
    ConnRate, "conn_rate", "MRP", "Connections in the last second";
    ConnRateMax, "conn_rate_max", "MMP", "The most connections in a second";
    ConnTot, "conn_tot", "MCP", "Connections since the start";
    Intercepted, "intercepted", "MCP", "Requests answered by the proxy itself";
    Dcon, "dcon", "MCP", "Connections that a rule denied";
    Dses, "dses", "MCP", "Sessions that a rule denied";
    Wrew, "wrew", "MCP", "Headers that could not be rewritten";
    Connect, "connect", "MCP", "Connections opened to servers";
    Reuse, "reuse", "MCP", "Requests sent over a kept connection";
    CacheLookups, "cache_lookups", "MCP", "Responses looked for in a cache";
    CacheHits, "cache_hits", "MCP", "Responses found in a cache";
    SrvIcur, "srv_icur", "MGP", "Idle connections now";
    SrcIlim, "src_ilim", "CLP", "Limit of idle connections";
    QtimeMax, "qtime_max", "MMP", "The longest time in queues, ms";
    CtimeMax, "ctime_max", "MMP", "The longest time to connect, ms";
    RtimeMax, "rtime_max", "MMP", "The longest time to respond, ms";
    TtimeMax, "ttime_max", "MMP", "The longest time in all, ms";
    Eint, "eint", "MCP", "Errors of our own";
    IdleConnCur, "idle_conn_cur", "MGP", "Idle connections that may not be shared";
    SafeConnCur, "safe_conn_cur", "MGP", "Idle connections that may be shared";
    UsedConnCur, "used_conn_cur", "MGP", "Connections in use";
    NeedConnEst, "need_conn_est", "MGP", "Connections that are probably needed";
    Uweight, "uweight", "MaP", "Weight as it was set";
    AggServerStatus, "agg_server_status", "MGP", "Not kept";
    AggServerCheckStatus, "agg_server_check_status", "MGP", "Not kept";
    AggCheckStatus, "agg_check_status", "MGP", "Not kept";
    SslSess, "ssl_sess", "MCP", "TLS sessions";
    SslReusedSess, "ssl_reused_sess", "MCP", "TLS sessions taken up again";
    SslFailedHandshake, "ssl_failed_handshake", "MCP", "TLS handshakes that failed";
    H2HeadersRcvd, "h2_headers_rcvd", "MCP", "Not kept";
    H2DataRcvd, "h2_data_rcvd", "MCP", "Not kept";
    H2SettingsRcvd, "h2_settings_rcvd", "MCP", "Not kept";
    H2RstStreamRcvd, "h2_rst_stream_rcvd", "MCP", "Not kept";
    H2GoawayRcvd, "h2_goaway_rcvd", "MCP", "Not kept";
    H2DetectedConnProtocolErrors, "h2_detected_conn_protocol_errors", "MCP", "Not kept";
    H2DetectedStrmProtocolErrors, "h2_detected_strm_protocol_errors", "MCP", "Not kept";
    H2RstStreamResp, "h2_rst_stream_resp", "MCP", "Not kept";
    H2GoawayResp, "h2_goaway_resp", "MCP", "Not kept";
    H2OpenConnections, "h2_open_connections", "MGP", "Not kept";
    H2BackendOpenStreams, "h2_backend_open_streams", "MGP", "Not kept";
    H2TotalConnections, "h2_total_connections", "MCP", "Not kept";
    H2BackendTotalStreams, "h2_backend_total_streams", "MCP", "Not kept";
    H1OpenConnections, "h1_open_connections", "MGP", "Not kept";
    H1OpenStreams, "h1_open_streams", "MGP", "Not kept";
    H1TotalConnections, "h1_total_connections", "MCP", "Not kept";
    H1TotalStreams, "h1_total_streams", "MCP", "Not kept";
    H1BytesIn, "h1_bytes_in", "MCP", "Not kept";
    H1BytesOut, "h1_bytes_out", "MCP", "Not kept";
    H1SplicedBytesIn, "h1_spliced_bytes_in", "MCP", "Not kept";
    H1SplicedBytesOut, "h1_spliced_bytes_out", "MCP", "Not kept";
}
