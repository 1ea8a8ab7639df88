//! The `%` tags of log formats (configuration manual 8.2.6): one row each.

/// What a tag stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tag {
    /// `%ac`
    ActiveConnections,
    /// `%b`
    Backend,
    /// `%bc`
    BackendConnections,
    /// `%bi`
    BackendSourceIp,
    /// `%bp`
    BackendSourcePort,
    /// `%bq`
    BackendQueue,
    /// `%B`
    BytesRead,
    /// `%U`
    BytesUploaded,
    /// `%CC`
    RequestCookie,
    /// `%CS`
    ResponseCookie,
    /// `%ci`
    ClientIp,
    /// `%cp`
    ClientPort,
    /// `%f`
    Frontend,
    /// `%fc`
    FrontendConnections,
    /// `%fi`
    FrontendIp,
    /// `%fp`
    FrontendPort,
    /// `%ft`
    FrontendTransport,
    /// `%hr`
    RequestCaptures,
    /// `%hrl`
    RequestCaptureList,
    /// `%hs`
    ResponseCaptures,
    /// `%hsl`
    ResponseCaptureList,
    /// `%H`
    Hostname,
    /// `%HM`
    Method,
    /// `%HP`
    UriWithoutQuery,
    /// `%HPO`
    Path,
    /// `%HQ`
    Query,
    /// `%HU`
    Uri,
    /// `%HV`
    Version,
    /// `%ID`
    UniqueId,
    /// `%lc`
    LineCounter,
    /// `%ms`
    Milliseconds,
    /// `%pid`
    Pid,
    /// `%r`
    RequestLine,
    /// `%rc`
    Retries,
    /// `%rt`
    RequestCounter,
    /// `%s`
    Server,
    /// `%sc`
    ServerConnections,
    /// `%si`
    ServerIp,
    /// `%sp`
    ServerPort,
    /// `%sq`
    ServerQueue,
    /// `%ST`
    Status,
    /// `%sslc`
    TlsCipher,
    /// `%sslv`
    TlsVersion,
    /// `%t`
    Date,
    /// `%T`
    GmtDate,
    /// `%Tl`
    LocalDate,
    /// `%tr`
    RequestDate,
    /// `%trg`
    GmtRequestDate,
    /// `%trl`
    LocalRequestDate,
    /// `%Ts`
    Timestamp,
    /// `%Ta`
    ActiveTime,
    /// `%Tc`
    ConnectTime,
    /// `%Td`
    DataTime,
    /// `%Th`
    HandshakeTime,
    /// `%Ti`
    IdleTime,
    /// `%Tq`
    QueryTime,
    /// `%TR`
    RequestTime,
    /// `%Tr`
    ResponseTime,
    /// `%Tt`
    TotalTime,
    /// `%Tu`
    UserTime,
    /// `%Tw`
    QueueTime,
    /// `%ts`
    TerminationState,
    /// `%tsc`
    TerminationStateCookie,
}

/// A tag's name, the tag, and whether it is about HTTP alone.
pub(super) const TAGS: &[(&str, Tag, bool)] = &[
    ("ac", Tag::ActiveConnections, false),
    ("b", Tag::Backend, false),
    ("bc", Tag::BackendConnections, false),
    ("bi", Tag::BackendSourceIp, false),
    ("bp", Tag::BackendSourcePort, false),
    ("bq", Tag::BackendQueue, false),
    ("B", Tag::BytesRead, false),
    ("U", Tag::BytesUploaded, false),
    ("CC", Tag::RequestCookie, true),
    ("CS", Tag::ResponseCookie, true),
    ("ci", Tag::ClientIp, false),
    ("cp", Tag::ClientPort, false),
    ("f", Tag::Frontend, false),
    ("fc", Tag::FrontendConnections, false),
    ("fi", Tag::FrontendIp, false),
    ("fp", Tag::FrontendPort, false),
    ("ft", Tag::FrontendTransport, false),
    ("hr", Tag::RequestCaptures, false),
    ("hrl", Tag::RequestCaptureList, false),
    ("hs", Tag::ResponseCaptures, false),
    ("hsl", Tag::ResponseCaptureList, false),
    ("H", Tag::Hostname, false),
    ("HM", Tag::Method, true),
    ("HP", Tag::UriWithoutQuery, true),
    ("HPO", Tag::Path, true),
    ("HQ", Tag::Query, true),
    ("HU", Tag::Uri, true),
    ("HV", Tag::Version, true),
    ("ID", Tag::UniqueId, false),
    ("lc", Tag::LineCounter, false),
    ("ms", Tag::Milliseconds, false),
    ("pid", Tag::Pid, false),
    ("r", Tag::RequestLine, true),
    ("rc", Tag::Retries, false),
    ("rt", Tag::RequestCounter, false),
    ("s", Tag::Server, false),
    ("sc", Tag::ServerConnections, false),
    ("si", Tag::ServerIp, false),
    ("sp", Tag::ServerPort, false),
    ("sq", Tag::ServerQueue, false),
    ("ST", Tag::Status, false),
    ("sslc", Tag::TlsCipher, false),
    ("sslv", Tag::TlsVersion, false),
    ("t", Tag::Date, false),
    ("T", Tag::GmtDate, false),
    ("Tl", Tag::LocalDate, false),
    ("tr", Tag::RequestDate, true),
    ("trg", Tag::GmtRequestDate, true),
    ("trl", Tag::LocalRequestDate, true),
    ("Ts", Tag::Timestamp, false),
    ("Ta", Tag::ActiveTime, true),
    ("Tc", Tag::ConnectTime, false),
    ("Td", Tag::DataTime, false),
    ("Th", Tag::HandshakeTime, false),
    ("Ti", Tag::IdleTime, true),
    ("Tq", Tag::QueryTime, true),
    ("TR", Tag::RequestTime, true),
    ("Tr", Tag::ResponseTime, true),
    ("Tt", Tag::TotalTime, false),
    ("Tu", Tag::UserTime, false),
    ("Tw", Tag::QueueTime, false),
    ("ts", Tag::TerminationState, false),
    ("tsc", Tag::TerminationStateCookie, false),
];
