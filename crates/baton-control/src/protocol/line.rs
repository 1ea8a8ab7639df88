//! A question or its reply on a stream: one line, bounded in length and in time. Whoever is slow or says too much is an error, and nobody
//! waits for the rest.

use std::io;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

use super::{Envelope, Reply};

/// How long a client may take for its question.
pub const ASKED_WITHIN: Duration = Duration::from_secs(5);
/// How long it may take to read the reply.
pub const READ_WITHIN: Duration = Duration::from_secs(30);

/// What is said, as a line in this version.
///
/// # Errors
/// Never so far: a line is made of plain data.
pub fn encode<T: Serialize>(body: T) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Envelope::new(body))?;
    line.push(b'\n');
    Ok(line)
}

/// The next line of at most `bytes_max`, however long it takes; what is longer is cut off. Empty when nothing comes any more.
///
/// # Errors
/// The system's, and bytes that are no text.
pub async fn read(stream: impl AsyncRead + Unpin, bytes_max: usize) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(bytes_max as u64)).read_line(&mut line).await?;
    Ok(line)
}

/// A client's question, within [`ASKED_WITHIN`].
///
/// # Errors
/// As [`read`], and when it comes too late.
pub async fn read_question(stream: impl AsyncRead + Unpin, bytes_max: usize) -> io::Result<String> {
    tokio::time::timeout(ASKED_WITHIN, read(stream, bytes_max)).await.map_err(io::Error::other)?
}

/// Replies to a client, within [`READ_WITHIN`].
///
/// # Errors
/// The system's, and when the client does not read.
pub async fn write_reply(stream: &mut (impl AsyncWrite + Unpin), reply: Reply) -> io::Result<()> {
    let line = encode(reply)?;
    tokio::time::timeout(READ_WITHIN, stream.write_all(&line)).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_is_bounded_in_length_and_in_time() {
        let (mut ours, mut theirs) = tokio::io::duplex(64);
        theirs.write_all(b"12345678\nmore").await.unwrap();
        assert_eq!(read_question(&mut ours, 4).await.unwrap(), "1234");
        let (mut ours, mut theirs) = tokio::io::duplex(64);
        theirs.write_all(b"12").await.unwrap();
        assert!(read_question(&mut ours, 64).await.is_err(), "the rest never comes");
        let reply = || Reply::Failed { reason: "x".repeat(100) };
        assert!(write_reply(&mut ours, reply()).await.is_err(), "nobody reads");
        drop(theirs);
        assert!(write_reply(&mut ours, reply()).await.is_err());
        assert_eq!(read(&mut ours, 64).await.unwrap(), "");
    }
}
