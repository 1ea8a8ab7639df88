//! Fetches from the connection (configuration manual 7.3.3 and 7.3.4).

use std::net::SocketAddr;

use super::Fetch;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::live::{ConnectionFigure, Endpoint, Figure, Side, TcpFigure};
use crate::place::FetchNeeds;
use crate::problem::RuleError;
use crate::sample::{Sample, Type};

const UNIT: &[Arg] = &[Arg::opt(ArgKind::Word(&["ms", "us"]))];

/// The types of values in a PROXY header (proxy-protocol.txt 2.2).
const TLV_AUTHORITY: u8 = 2;
const TLV_UNIQUE_ID: u8 = 5;

/// The messages of errors of connections, by number (configuration manual, `fc_err_str`).
#[rustfmt::skip]
const ERRORS: [&str; 44] = [
    "Success", "Reached configured maxconn value", "Too many sockets on the process", "Too many sockets on the system",
    "Out of system buffers", "Protocol or address family not supported", "General socket error",
    "Source port range exhausted", "Can't bind to source address", "Out of local source ports on the system",
    "Local source address already in use", "Connection closed while waiting for PROXY protocol header",
    "Connection error while waiting for PROXY protocol header", "Timeout while waiting for PROXY protocol header",
    "Truncated PROXY protocol header received", "Received something which does not look like a PROXY protocol header",
    "Received an invalid PROXY protocol header", "Received an unhandled protocol in the PROXY protocol header",
    "Connection closed while waiting for NetScaler Client IP header",
    "Connection error while waiting for NetScaler Client IP header",
    "Timeout while waiting for a NetScaler Client IP header", "Truncated NetScaler Client IP header received",
    "Received an invalid NetScaler Client IP magic number",
    "Received an unhandled protocol in the NetScaler Client IP header", "Connection closed during SSL handshake",
    "Connection error during SSL handshake", "Timeout during SSL handshake", "Too many SSL connections",
    "Out of memory when initializing an SSL connection", "Rejected a client-initiated SSL renegotiation attempt",
    "SSL client CA chain cannot be verified", "SSL client certificate not trusted",
    "Server presented an SSL certificate different from the configured one",
    "Server presented an SSL certificate different from the expected one", "SSL handshake failure",
    "SSL handshake failure after heartbeat", "Stopped a TLSv1 heartbeat attack (CVE-2014-0160)",
    "Attempt to use SSL on an unknown target (internal error)", "Server refused early data",
    "SOCKS4 Proxy write error during handshake", "SOCKS4 Proxy read error during handshake",
    "SOCKS4 Proxy deny the request", "SOCKS4 Proxy handshake aborted by server", "SSL fatal error",
];

/// An address of a connection.
macro_rules! address {
    ($name:literal, $needs:ident, $endpoint:ident, $doc:literal) => {
        Fetch::new(&[$name], Type::Ip, FetchNeeds::$needs, |cx, _| ip(cx.live.address(Endpoint::$endpoint)), $doc)
    };
}

/// A port of a connection.
macro_rules! port {
    ($name:literal, $needs:ident, $endpoint:ident, $doc:literal) => {
        Fetch::new(&[$name], Type::Int, FetchNeeds::$needs, |cx, _| port(cx.live.address(Endpoint::$endpoint)), $doc)
    };
}

/// A figure of TCP_INFO that counts something.
macro_rules! tcp {
    ($name:literal, $needs:ident, $side:ident, $figure:ident, $doc:literal) => {
        Fetch::new(
            &[$name],
            Type::Int,
            FetchNeeds::$needs,
            |cx, _| cx.live.figure(Figure::Tcp(Side::$side, TcpFigure::$figure)).map(Sample::Int),
            $doc,
        )
    };
}

/// A time of TCP_INFO.
macro_rules! tcp_time {
    ($name:literal, $needs:ident, $side:ident, $figure:ident, $doc:literal) => {
        Fetch::new(
            &[$name],
            Type::Int,
            FetchNeeds::$needs,
            |cx, args| time(cx.live.figure(Figure::Tcp(Side::$side, TcpFigure::$figure)), args),
            $doc,
        )
        .args(UNIT)
    };
}

/// Whether a peer ended an exchange before its time.
macro_rules! aborted {
    ($name:literal, $needs:ident, $side:ident, $doc:literal) => {
        Fetch::new(
            &[$name],
            Type::Bool,
            FetchNeeds::$needs,
            |cx, _| {
                let figure = Figure::Connection(Side::$side, ConnectionFigure::IsAborted);
                cx.live.figure(figure).map(|is_aborted| Sample::Bool(is_aborted != 0))
            },
            $doc,
        )
    };
}

/// What a connection of the process is.
macro_rules! of_connection {
    ($name:literal, $needs:ident, $side:ident, $figure:ident, $doc:literal) => {
        Fetch::new(
            &[$name],
            Type::Int,
            FetchNeeds::$needs,
            |cx, _| cx.live.figure(Figure::Connection(Side::$side, ConnectionFigure::$figure)).map(Sample::Int),
            $doc,
        )
    };
}

pub(super) const ROWS: &[Fetch] = &[
    Fetch::new(&["src"], Type::Ip, FetchNeeds::NOTHING, |cx, _| ip(cx.client), "The client's address."),
    Fetch::new(&["src_port"], Type::Int, FetchNeeds::NOTHING, |cx, _| port(cx.client), "The client's port."),
    Fetch::new(
        &["dst"],
        Type::Ip,
        FetchNeeds::NOTHING,
        |cx, _| ip((cx.destination)()),
        "The destination address of the client's connection.",
    ),
    Fetch::new(
        &["dst_port"],
        Type::Int,
        FetchNeeds::NOTHING,
        |cx, _| port((cx.destination)()),
        "The destination port of the client's connection.",
    ),
    Fetch::new(
        &["src_is_local"],
        Type::Bool,
        FetchNeeds::NOTHING,
        |cx, _| local(cx, cx.client),
        "Whether the client's address is one of the system.",
    ),
    Fetch::new(
        &["dst_is_local"],
        Type::Bool,
        FetchNeeds::NOTHING,
        |cx, _| local(cx, (cx.destination)()),
        "Whether the destination of the client's connection is an address of the system.",
    ),
    address!("fc_src", NOTHING, ClientSource, "The client's address, whatever rules made of src."),
    port!("fc_src_port", NOTHING, ClientSource, "The client's port, whatever rules made of src_port."),
    address!("fc_dst", NOTHING, ClientDestination, "The destination of the client's connection, before rules."),
    port!("fc_dst_port", NOTHING, ClientDestination, "The destination port of the client's connection, before rules."),
    Fetch::new(
        &["fc_src_is_local"],
        Type::Bool,
        FetchNeeds::NOTHING,
        |cx, _| local(cx, cx.live.address(Endpoint::ClientSource)),
        "Whether fc_src is an address of the system.",
    ),
    Fetch::new(
        &["fc_dst_is_local"],
        Type::Bool,
        FetchNeeds::NOTHING,
        |cx, _| local(cx, cx.live.address(Endpoint::ClientDestination)),
        "Whether fc_dst is an address of the system.",
    ),
    address!("bc_src", SERVER, ServerSource, "The address that the server's connection comes from."),
    port!("bc_src_port", SERVER, ServerSource, "The port that the server's connection comes from."),
    address!("bc_dst", SERVER, ServerDestination, "The address of the server that the connection goes to."),
    port!("bc_dst_port", SERVER, ServerDestination, "The port of the server that the connection goes to."),
    of_connection!("fc_http_major", NOTHING, Client, HttpMajor, "The major version of HTTP with the client."),
    of_connection!("bc_http_major", SERVER, Server, HttpMajor, "The major version of HTTP with the server."),
    of_connection!(
        "fs.id",
        NOTHING,
        Client,
        Stream,
        "The stream of the client's request; in HTTP/1 its number on the connection; 0 without HTTP."
    ),
    of_connection!(
        "bs.id",
        SERVER,
        Server,
        Stream,
        "The stream of the request to the server; in HTTP/1 its number on the connection; 0 without HTTP."
    ),
    aborted!(
        "fs.aborted",
        NOTHING,
        Client,
        "Whether the client ended the request, or its connection, before its time."
    ),
    aborted!(
        "bs.aborted",
        SERVER,
        Server,
        "Whether the server ended the response, or its connection, before its time."
    ),
    of_connection!(
        "fs.rst_code",
        NOTHING,
        Client,
        ResetCode,
        "The code that the client reset the stream with (HTTP/2); none without a reset."
    ),
    of_connection!(
        "bs.rst_code",
        SERVER,
        Server,
        ResetCode,
        "The code that the server reset the stream with (HTTP/2); none without a reset."
    ),
    of_connection!(
        "fc_glitches",
        NOTHING,
        Client,
        Glitches,
        "Oddities that came by the client's connection; 0 without HTTP/2."
    ),
    of_connection!(
        "bc_glitches",
        SERVER,
        Server,
        Glitches,
        "Oddities that came by the server's connection; 0 without HTTP/2."
    ),
    of_connection!(
        "fc_nb_streams",
        NOTHING,
        Client,
        Streams,
        "Streams that are open on the client's connection; without HTTP/2 1."
    ),
    of_connection!(
        "bc_nb_streams",
        SERVER,
        Server,
        Streams,
        "Streams that are open on the server's connection; without HTTP/2 1."
    ),
    of_connection!(
        "fc_setting_streams_limit",
        NOTHING,
        Client,
        StreamsMax,
        "The most streams that the client may open at a time; without HTTP/2 1."
    ),
    of_connection!(
        "bc_setting_streams_limit",
        SERVER,
        Server,
        StreamsMax,
        "The most streams that may be open to the server on its connection at a time; without HTTP/2 1."
    ),
    of_connection!("fc_err", NOTHING, Client, Error, "The number of the error of the client's connection; 0: none."),
    of_connection!("bc_err", SERVER, Server, Error, "The number of the error of the server's connection; 0: none."),
    Fetch::new(
        &["fc_err_str"],
        Type::Str,
        FetchNeeds::NOTHING,
        |cx, _| error(cx, Side::Client),
        "The error of the client's connection in words.",
    ),
    Fetch::new(
        &["bc_err_str"],
        Type::Str,
        FetchNeeds::SERVER,
        |cx, _| error(cx, Side::Server),
        "The error of the server's connection in words.",
    ),
    Fetch::new(
        &["fc_rcvd_proxy"],
        Type::Bool,
        FetchNeeds::NOTHING,
        |cx, _| {
            let figure = Figure::Connection(Side::Client, ConnectionFigure::HasProxyHeader);
            cx.live.figure(figure).map(|has| Sample::Bool(has != 0))
        },
        "Whether the client's connection began with a PROXY header.",
    ),
    Fetch::new(
        &["fc_pp_authority"],
        Type::Str,
        FetchNeeds::NOTHING,
        |cx, _| cx.live.proxy_header_value(TLV_AUTHORITY).map(Sample::str),
        "The host name (authority) in the PROXY header.",
    ),
    Fetch::new(
        &["fc_pp_unique_id"],
        Type::Str,
        FetchNeeds::NOTHING,
        |cx, _| cx.live.proxy_header_value(TLV_UNIQUE_ID).map(Sample::str),
        "The unique ID in the PROXY header.",
    ),
    Fetch::new(
        &["fc_pp_tlv"],
        Type::Str,
        FetchNeeds::NOTHING,
        header_value,
        "The value of this type in the PROXY header: a number, or authority, unique-id, alpn, netns.",
    )
    .args(&[Arg::req(ArgKind::Str)])
    .check(tlv_kind),
    tcp_time!("fc_rtt", NOTHING, Client, Rtt, "The round-trip time of the client's connection, in ms or us."),
    tcp_time!("fc_rttvar", NOTHING, Client, RttVariance, "How much the client's round-trip time varies, in ms or us."),
    tcp!("fc_unacked", NOTHING, Client, Unacked, "Segments to the client that it has not acknowledged yet."),
    tcp!("fc_sacked", NOTHING, Client, Sacked, "Segments to the client that it acknowledged selectively."),
    tcp!("fc_retrans", NOTHING, Client, Retransmits, "Retransmissions in a row on the client's connection."),
    tcp!("fc_fackets", NOTHING, Client, Fackets, "The kernel's fack counter of the client's connection."),
    tcp!("fc_lost", NOTHING, Client, Lost, "Segments to the client that are taken for lost."),
    tcp!("fc_reordering", NOTHING, Client, Reordering, "The kernel's measure of reordering to the client."),
    tcp_time!("bc_rtt", SERVER, Server, Rtt, "The round-trip time of the server's connection, in ms or us."),
    tcp_time!("bc_rttvar", SERVER, Server, RttVariance, "How much the server's round-trip time varies, in ms or us."),
    tcp!("bc_unacked", SERVER, Server, Unacked, "Segments to the server that it has not acknowledged yet."),
    tcp!("bc_sacked", SERVER, Server, Sacked, "Segments to the server that it acknowledged selectively."),
    tcp!("bc_retrans", SERVER, Server, Retransmits, "Retransmissions in a row on the server's connection."),
    tcp!("bc_fackets", SERVER, Server, Fackets, "The kernel's fack counter of the server's connection."),
    tcp!("bc_lost", SERVER, Server, Lost, "Segments to the server that are taken for lost."),
    tcp!("bc_reordering", SERVER, Server, Reordering, "The kernel's measure of reordering to the server."),
    Fetch::new(&["fe_name"], Type::Str, FetchNeeds::NOTHING, fe_name, "The frontend's name."),
    Fetch::new(&["fe_id"], Type::Int, FetchNeeds::NOTHING, fe_id, "The frontend's id."),
    Fetch::new(&["so_id"], Type::Int, FetchNeeds::NOTHING, so_id, "The id of the listening socket."),
    Fetch::new(&["so_name"], Type::Str, FetchNeeds::NOTHING, so_name, "The name of the listening socket."),
];

fn ip<'c>(address: Option<SocketAddr>) -> Option<Sample<'c>> {
    address.map(|address| Sample::Ip(address.ip()))
}

fn port<'c>(address: Option<SocketAddr>) -> Option<Sample<'c>> {
    address.map(|address| Sample::Int(address.port().into()))
}

fn local<'c>(cx: &Context<'_>, address: Option<SocketAddr>) -> Option<Sample<'c>> {
    address.map(|address| Sample::Bool(cx.live.is_local(address.ip())))
}

fn time<'c>(us: Option<i64>, args: &[Value]) -> Option<Sample<'c>> {
    let divisor = if args.first().map(Value::bytes) == Some(b"us") { 1 } else { 1000 };
    us.map(|us| Sample::Int(us / divisor))
}

fn error<'c>(cx: &Context<'_>, side: Side) -> Option<Sample<'c>> {
    let number = cx.live.figure(Figure::Connection(side, ConnectionFigure::Error))?;
    ERRORS.get(usize::try_from(number).ok()?).map(|text| Sample::str(text.as_bytes()))
}

fn tlv_kind(args: &mut [Value]) -> Result<(), RuleError> {
    let text = args[0].name().unwrap_or_default();
    let kind = match text {
        "alpn" => 1,
        "authority" => TLV_AUTHORITY,
        "unique-id" => TLV_UNIQUE_ID,
        "netns" => 0x30,
        number => {
            let hex = number.strip_prefix("0x").map(|digits| u8::from_str_radix(digits, 16));
            hex.unwrap_or_else(|| number.parse()).map_err(|_| {
                RuleError::new(format!("'{text}' is not a type of a value in a PROXY header"))
                    .hint("use a number from 0 to 255, or authority, unique-id, alpn, netns")
            })?
        }
    };
    args[0] = Value::Int(kind.into());
    Ok(())
}

fn header_value<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    cx.live.proxy_header_value(u8::try_from(args[0].int()?).ok()?).map(Sample::str)
}

fn fe_name<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    Some(Sample::str(cx.frontend.name.as_bytes()))
}

fn fe_id<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    Some(Sample::Int(cx.frontend.id.into()))
}

fn so_id<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    Some(Sample::Int(i64::try_from(cx.listener.id).unwrap_or(i64::MAX)))
}

fn so_name<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    cx.listener.name.map(|name| Sample::str(name.as_bytes()))
}
