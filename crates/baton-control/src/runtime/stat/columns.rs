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
    Qcur, "qcur", "MGP", "Requests in the queue";
    Qmax, "qmax", "MMP", "Peak of requests in the queue";
    Scur, "scur", "MGP", "Current sessions";
    Smax, "smax", "MMP", "Peak of sessions";
    Slim, "slim", "CLP", "Limit of sessions";
    Stot, "stot", "MCP", "Sessions since the start";
    Bin, "bin", "MCP", "Bytes from clients";
    Bout, "bout", "MCP", "Bytes to clients";
    Dreq, "dreq", "MCP", "Requests denied by a rule";
    Dresp, "dresp", "MCP", "Responses denied by a rule";
    Ereq, "ereq", "MCP", "Invalid requests";
    Econ, "econ", "MCP", "Connections to servers that failed";
    Eresp, "eresp", "MCP", "Responses that failed";
    Wretr, "wretr", "MCP", "Retried connections to servers";
    Wredis, "wredis", "MCP", "Redispatched requests";
    Status, "status", "SGP", "Status";
    Weight, "weight", "MaP", "Effective weight";
    Act, "act", "MGP", "Active servers in use; of a server, 1 if it is active";
    Bck, "bck", "MGP", "Backup servers in use; of a server, 1 if it is a backup";
    Chkfail, "chkfail", "MCP", "Failed checks while up";
    Chkdown, "chkdown", "MCP", "Transitions to down";
    Lastchg, "lastchg", "MAP", "Seconds since it last went up or down";
    Downtime, "downtime", "MCP", "Total downtime in seconds";
    Qlimit, "qlimit", "CGS", "Queue limit";
    Pid, "pid", "KGP", "Number of the process: 1";
    Iid, "iid", "KGS", "Number of the proxy";
    Sid, "sid", "KGS", "Number of the server or socket in its proxy";
    Throttle, "throttle", "MaP", "Share of its weight in slow start, percent";
    Lbtot, "lbtot", "MCP", "Times it was selected";
    Tracked, "tracked", "CNS", "Tracked server";
    Type, "type", "CGS", "0 frontend, 1 backend, 2 server, 3 socket";
    Rate, "rate", "MRP", "Sessions in the last second";
    RateLim, "rate_lim", "CLP", "Limit of sessions per second";
    RateMax, "rate_max", "MMP", "Peak of sessions per second";
    CheckStatus, "check_status", "MOP", "Result of the last check";
    CheckCode, "check_code", "MOP", "Status code of the last check";
    CheckDuration, "check_duration", "MDP", "Duration of the last check, ms";
    Hrsp1xx, "hrsp_1xx", "MCP", "Responses 100 to 199";
    Hrsp2xx, "hrsp_2xx", "MCP", "Responses 200 to 299";
    Hrsp3xx, "hrsp_3xx", "MCP", "Responses 300 to 399";
    Hrsp4xx, "hrsp_4xx", "MCP", "Responses 400 to 499";
    Hrsp5xx, "hrsp_5xx", "MCP", "Responses 500 to 599";
    HrspOther, "hrsp_other", "MCP", "Responses with other codes";
    Hanafail, "hanafail", "MCP", "Traffic errors that counted as failed checks";
    ReqRate, "req_rate", "MRP", "Requests in the last second";
    ReqRateMax, "req_rate_max", "MMP", "Peak of requests per second";
    ReqTot, "req_tot", "MCP", "Requests since the start";
    CliAbrt, "cli_abrt", "MCP", "Transfers aborted by the client";
    SrvAbrt, "srv_abrt", "MCP", "Transfers aborted by the server";
    CompIn, "comp_in", "MCP", "Bytes to be compressed";
    CompOut, "comp_out", "MCP", "Bytes compressed";
    CompByp, "comp_byp", "MCP", "Bytes not compressed for lack of CPU";
    CompRsp, "comp_rsp", "MCP", "Responses compressed";
    Lastsess, "lastsess", "MAP", "Seconds since the last session; -1 without one";
    LastChk, "last_chk", "MOP", "Output of the last check";
    LastAgt, "last_agt", "MOP", "Output of the last agent check";
    Qtime, "qtime", "MaP", "Time in queues, average of the last requests, ms";
    Ctime, "ctime", "MaP", "Time to connect, average of the last requests, ms";
    Rtime, "rtime", "MaP", "Time to respond, average of the last requests, ms";
    Ttime, "ttime", "MaP", "Total time, average of the last requests, ms";
    AgentStatus, "agent_status", "MOP", "Result of the last agent check";
    AgentCode, "agent_code", "MOP", "Code of the last agent check";
    AgentDuration, "agent_duration", "MDP", "Duration of the last agent check, ms";
    CheckDesc, "check_desc", "MOP", "Description of the last check's result";
    AgentDesc, "agent_desc", "MOP", "Description of the last agent check's result";
    CheckRise, "check_rise", "CGS", "Consecutive successful checks before up";
    CheckFall, "check_fall", "CGS", "Consecutive failed checks before down";
    CheckHealth, "check_health", "CGS", "Counter of checks: up from check_rise on";
    AgentRise, "agent_rise", "CGS", "The same for the agent";
    AgentFall, "agent_fall", "CGS", "The same for the agent";
    AgentHealth, "agent_health", "CGS", "The same for the agent";
    Addr, "addr", "CGS", "Address and port, or unix";
    Cookie, "cookie", "CNS", "Value of a server's cookie, name of a backend's";
    Mode, "mode", "CGS", "Mode of the proxy";
    Algo, "algo", "CGS", "Balancing algorithm";
    ConnRate, "conn_rate", "MRP", "Connections in the last second";
    ConnRateMax, "conn_rate_max", "MMP", "Peak of connections per second";
    ConnTot, "conn_tot", "MCP", "Connections since the start";
    Intercepted, "intercepted", "MCP", "Requests intercepted by the proxy";
    Dcon, "dcon", "MCP", "Connections denied by a rule";
    Dses, "dses", "MCP", "Sessions denied by a rule";
    Wrew, "wrew", "MCP", "Failed header rewrites";
    Connect, "connect", "MCP", "New connections to servers";
    Reuse, "reuse", "MCP", "Requests on reused connections";
    CacheLookups, "cache_lookups", "MCP", "Cache lookups";
    CacheHits, "cache_hits", "MCP", "Cache hits";
    SrvIcur, "srv_icur", "MGP", "Current idle connections";
    SrcIlim, "src_ilim", "CLP", "Limit of idle connections";
    QtimeMax, "qtime_max", "MMP", "Maximum time in queues, ms";
    CtimeMax, "ctime_max", "MMP", "Maximum time to connect, ms";
    RtimeMax, "rtime_max", "MMP", "Maximum time to respond, ms";
    TtimeMax, "ttime_max", "MMP", "Maximum total time, ms";
    Eint, "eint", "MCP", "Internal errors";
    IdleConnCur, "idle_conn_cur", "MGP", "Unsafe idle connections (not shared)";
    SafeConnCur, "safe_conn_cur", "MGP", "Safe idle connections (shared)";
    UsedConnCur, "used_conn_cur", "MGP", "Connections in use";
    NeedConnEst, "need_conn_est", "MGP", "Estimated need of connections";
    Uweight, "uweight", "MaP", "Configured weight";
    AggServerStatus, "agg_server_status", "MGP", "Not counted";
    AggServerCheckStatus, "agg_server_check_status", "MGP", "Not counted";
    AggCheckStatus, "agg_check_status", "MGP", "Not counted";
    SslSess, "ssl_sess", "MCP", "TLS sessions";
    SslReusedSess, "ssl_reused_sess", "MCP", "Resumed TLS sessions";
    SslFailedHandshake, "ssl_failed_handshake", "MCP", "Failed TLS handshakes";
    H2HeadersRcvd, "h2_headers_rcvd", "MCP", "HEADERS frames received from clients";
    H2DataRcvd, "h2_data_rcvd", "MCP", "DATA frames received from clients";
    H2SettingsRcvd, "h2_settings_rcvd", "MCP", "SETTINGS frames received from clients";
    H2RstStreamRcvd, "h2_rst_stream_rcvd", "MCP", "RST_STREAM frames received from clients";
    H2GoawayRcvd, "h2_goaway_rcvd", "MCP", "GOAWAY frames received from clients";
    H2DetectedConnProtocolErrors, "h2_detected_conn_protocol_errors", "MCP", "Violations of HTTP/2 that ended a connection";
    H2DetectedStrmProtocolErrors, "h2_detected_strm_protocol_errors", "MCP", "Violations of HTTP/2 that ended a stream";
    H2RstStreamResp, "h2_rst_stream_resp", "MCP", "RST_STREAM frames sent to clients";
    H2GoawayResp, "h2_goaway_resp", "MCP", "GOAWAY frames sent to clients";
    H2OpenConnections, "h2_open_connections", "MGP", "Current HTTP/2 connections";
    H2BackendOpenStreams, "h2_backend_open_streams", "MGP", "Current HTTP/2 streams";
    H2TotalConnections, "h2_total_connections", "MCP", "HTTP/2 connections since the start";
    H2BackendTotalStreams, "h2_backend_total_streams", "MCP", "HTTP/2 requests since the start";
    H1OpenConnections, "h1_open_connections", "MGP", "Current HTTP/1 connections of a frontend";
    H1OpenStreams, "h1_open_streams", "MGP", "Not counted";
    H1TotalConnections, "h1_total_connections", "MCP", "HTTP/1 connections since the start";
    H1TotalStreams, "h1_total_streams", "MCP", "HTTP/1 requests since the start";
    H1BytesIn, "h1_bytes_in", "MCP", "Not counted";
    H1BytesOut, "h1_bytes_out", "MCP", "Not counted";
    H1SplicedBytesIn, "h1_spliced_bytes_in", "MCP", "Not counted";
    H1SplicedBytesOut, "h1_spliced_bytes_out", "MCP", "Not counted";
}
