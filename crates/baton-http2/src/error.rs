//! Error codes (RFC 9113 7), and every way in which a peer violates the protocol.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An error code of RST_STREAM and GOAWAY. Codes that no RFC defines are kept as they are: they have no special meaning (RFC 9113 7).
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct ErrorCode(pub u32);

macro_rules! codes {
    ($($id:ident = $code:literal $text:literal,)*) => {
        impl ErrorCode {
            $(#[doc = concat!("`", $text, "`")] pub const $id: ErrorCode = ErrorCode($code);)*

            /// The name in the RFC, or `UNKNOWN`.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($code => $text,)*
                    _ => "UNKNOWN",
                }
            }
        }
    };
}

codes! {
    NO_ERROR = 0x0 "NO_ERROR",
    PROTOCOL_ERROR = 0x1 "PROTOCOL_ERROR",
    INTERNAL_ERROR = 0x2 "INTERNAL_ERROR",
    FLOW_CONTROL_ERROR = 0x3 "FLOW_CONTROL_ERROR",
    SETTINGS_TIMEOUT = 0x4 "SETTINGS_TIMEOUT",
    STREAM_CLOSED = 0x5 "STREAM_CLOSED",
    FRAME_SIZE_ERROR = 0x6 "FRAME_SIZE_ERROR",
    REFUSED_STREAM = 0x7 "REFUSED_STREAM",
    CANCEL = 0x8 "CANCEL",
    COMPRESSION_ERROR = 0x9 "COMPRESSION_ERROR",
    CONNECT_ERROR = 0xa "CONNECT_ERROR",
    ENHANCE_YOUR_CALM = 0xb "ENHANCE_YOUR_CALM",
    INADEQUATE_SECURITY = 0xc "INADEQUATE_SECURITY",
    HTTP_1_1_REQUIRED = 0xd "HTTP_1_1_REQUIRED",
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#x})", self.name(), self.0)
    }
}

/// What a violation ends: one stream, or the connection.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Scope {
    /// RST_STREAM; the connection goes on.
    Stream,
    /// GOAWAY, and the connection is closed.
    Connection,
}

macro_rules! violations {
    ($($id:ident: $scope:ident $code:ident $section:literal $text:literal,)*) => {
        /// A violation of the protocol by the peer, or a limit of ours that it reached.
        #[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
        pub enum Violation {
            $(#[doc = concat!($text, " (", $section, ")")] $id,)*
        }

        impl Violation {
            /// All of them.
            pub const ALL: &'static [Violation] = &[$(Violation::$id),*];

            /// What it ends.
            pub const fn scope(self) -> Scope {
                match self { $(Violation::$id => Scope::$scope,)* }
            }

            /// The code that the peer is sent.
            pub const fn code(self) -> ErrorCode {
                match self { $(Violation::$id => ErrorCode::$code,)* }
            }

            /// Whether a message is malformed (RFC 9113 8.1.1), not the protocol around it.
            pub fn is_about_message(self) -> bool {
                self.scope() == Scope::Stream && self.section().starts_with("RFC 9113 8") || self == Violation::ProtocolField
            }

            /// Where it is defined.
            pub const fn section(self) -> &'static str {
                match self { $(Violation::$id => $section,)* }
            }

            /// What is wrong, for a log line.
            pub const fn text(self) -> &'static str {
                match self { $(Violation::$id => $text,)* }
            }
        }
    };
}

violations! {
    Preface: Connection PROTOCOL_ERROR "RFC 9113 3.4" "invalid connection preface",
    NoSettings: Connection PROTOCOL_ERROR "RFC 9113 3.4" "the first frame is not SETTINGS",
    FrameTooLarge: Connection FRAME_SIZE_ERROR "RFC 9113 4.2" "frame longer than SETTINGS_MAX_FRAME_SIZE",
    FrameLength: Connection FRAME_SIZE_ERROR "RFC 9113 4.2" "frame of an invalid length",
    PriorityLength: Stream FRAME_SIZE_ERROR "RFC 9113 6.3" "PRIORITY frame of an invalid length",
    Padding: Connection PROTOCOL_ERROR "RFC 9113 6.1" "padding longer than the frame",
    StreamZero: Connection PROTOCOL_ERROR "RFC 9113 6" "frame of a stream on stream 0",
    NotStreamZero: Connection PROTOCOL_ERROR "RFC 9113 6" "frame of the connection on a stream",
    BlockInterrupted: Connection PROTOCOL_ERROR "RFC 9113 4.3" "another frame between the frames of a field block",
    ContinuationUnexpected: Connection PROTOCOL_ERROR "RFC 9113 6.10" "CONTINUATION without a field block",
    StreamIdParity: Connection PROTOCOL_ERROR "RFC 9113 5.1.1" "stream identifier of the wrong side",
    StreamIdle: Connection PROTOCOL_ERROR "RFC 9113 5.1" "frame on an idle stream",
    StreamClosed: Stream STREAM_CLOSED "RFC 9113 5.1" "DATA on a closed stream",
    StreamClosedHead: Connection STREAM_CLOSED "RFC 9113 5.1" "HEADERS on a closed stream",
    StreamHalfClosed: Stream STREAM_CLOSED "RFC 9113 5.1" "frame after the end of the stream",
    SelfDependency: Stream PROTOCOL_ERROR "RFC 7540 5.3.1" "stream that depends on itself",
    PushPromise: Connection PROTOCOL_ERROR "RFC 9113 8.4" "PUSH_PROMISE although pushing is disabled",
    SettingsAckLength: Connection FRAME_SIZE_ERROR "RFC 9113 6.5" "SETTINGS acknowledgement with a payload",
    SettingsAckUnexpected: Connection PROTOCOL_ERROR "RFC 9113 6.5" "SETTINGS acknowledgement without SETTINGS",
    SettingsValue: Connection PROTOCOL_ERROR "RFC 9113 6.5.2" "invalid value of a setting",
    SettingsWindow: Connection FLOW_CONTROL_ERROR "RFC 9113 6.5.2" "SETTINGS_INITIAL_WINDOW_SIZE above 2^31-1",
    SettingsWindowOverflow: Connection FLOW_CONTROL_ERROR "RFC 9113 6.9.2" "SETTINGS_INITIAL_WINDOW_SIZE that lifts a window above 2^31-1",
    WindowZero: Stream PROTOCOL_ERROR "RFC 9113 6.9" "WINDOW_UPDATE of 0",
    ConnectionWindowZero: Connection PROTOCOL_ERROR "RFC 9113 6.9" "WINDOW_UPDATE of 0 for the connection",
    WindowOverflow: Stream FLOW_CONTROL_ERROR "RFC 9113 6.9.1" "flow-control window above 2^31-1",
    ConnectionWindowOverflow: Connection FLOW_CONTROL_ERROR "RFC 9113 6.9.1" "flow-control window of the connection above 2^31-1",
    WindowExceeded: Stream FLOW_CONTROL_ERROR "RFC 9113 6.9.1" "more DATA than the window of the stream allows",
    ConnectionWindowExceeded: Connection FLOW_CONTROL_ERROR "RFC 9113 6.9.1" "more DATA than the window of the connection allows",
    GoAwayIncreased: Connection PROTOCOL_ERROR "RFC 9113 6.8" "GOAWAY with a higher stream than the one before",
    Compression: Connection COMPRESSION_ERROR "RFC 7541" "field block that cannot be decoded",
    TooManyStreams: Stream REFUSED_STREAM "RFC 9113 5.1.2" "more streams than SETTINGS_MAX_CONCURRENT_STREAMS",
    FieldName: Stream PROTOCOL_ERROR "RFC 9113 8.2.1" "invalid field name",
    FieldValue: Stream PROTOCOL_ERROR "RFC 9113 8.2.1" "invalid field value",
    ConnectionField: Stream PROTOCOL_ERROR "RFC 9113 8.2.2" "field about the connection",
    PseudoUnknown: Stream PROTOCOL_ERROR "RFC 9113 8.3" "unknown pseudo-header field",
    PseudoOrder: Stream PROTOCOL_ERROR "RFC 9113 8.3" "pseudo-header field after a field",
    PseudoRepeated: Stream PROTOCOL_ERROR "RFC 9113 8.3" "repeated pseudo-header field",
    PseudoMissing: Stream PROTOCOL_ERROR "RFC 9113 8.3.1" "missing pseudo-header field",
    PseudoInvalid: Stream PROTOCOL_ERROR "RFC 9113 8.3.1" "invalid value of a pseudo-header field",
    PseudoTrailer: Stream PROTOCOL_ERROR "RFC 9113 8.1" "pseudo-header field in a trailer section",
    AuthorityHost: Stream PROTOCOL_ERROR "RFC 9113 8.3.1" ":authority and host differ",
    ConnectFields: Stream PROTOCOL_ERROR "RFC 9113 8.5" "CONNECT with :scheme or :path, or without :authority",
    ProtocolField: Stream PROTOCOL_ERROR "RFC 8441 4" ":protocol that is not allowed here",
    ContentLength: Stream PROTOCOL_ERROR "RFC 9113 8.1.1" "invalid content-length",
    ContentLengthDiffers: Stream PROTOCOL_ERROR "RFC 9113 8.1.1" "content-length and DATA differ",
    TrailersNoEnd: Stream PROTOCOL_ERROR "RFC 9113 8.1" "trailer section without the end of the stream",
    InterimEnd: Stream PROTOCOL_ERROR "RFC 9113 8.1" "interim response that ends the stream",
    DataBeforeHead: Stream PROTOCOL_ERROR "RFC 9113 8.1" "DATA before a final response",
    BlockTooLarge: Connection ENHANCE_YOUR_CALM "RFC 9113 10.5.1" "field block longer than our limit",
    TooManyContinuations: Connection ENHANCE_YOUR_CALM "RFC 9113 10.5" "too many CONTINUATION frames",
    TooManyResets: Connection ENHANCE_YOUR_CALM "RFC 9113 10.5" "too many streams reset before they ended",
    TooManyControlFrames: Connection ENHANCE_YOUR_CALM "RFC 9113 10.5" "too many frames that carry nothing",
    TooManyGlitches: Connection ENHANCE_YOUR_CALM "RFC 9113 10.5" "too many glitches",
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Violation {}
