//! One request that shows whether a change is in force.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long the whole exchange may take.
const TIME_MAX: Duration = Duration::from_secs(10);
/// How much of an answer is read, in bytes.
const ANSWER_MAX: u64 = 64 * 1024;

/// Asks on a connection of its own; the answer must have status 200 and the words in it.
///
/// # Errors
/// A sentence that says what came instead.
pub async fn sees(at: SocketAddr, path: &str, words: &str) -> Result<(), String> {
    let answer = match timeout(TIME_MAX, exchange(at, path)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(format!("a request for {path} at {at}: {error}")),
        Err(_) => return Err(format!("a request for {path} at {at} had no response within {} s", TIME_MAX.as_secs())),
    };
    judge(&answer, words).map_err(|text| format!("a request for {path} at {at}: {text}"))
}

async fn exchange(at: SocketAddr, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer).await?;
    Ok(answer)
}

fn judge(answer: &[u8], words: &str) -> Result<(), String> {
    let answer = String::from_utf8_lossy(answer);
    let line = answer.lines().next().unwrap_or("nothing");
    if !answer.starts_with("HTTP/1.1 200 ") {
        return Err(format!("the response is {line}"));
    }
    match answer.contains(words) {
        true => Ok(()),
        false => Err(format!("its response does not contain {words}: {}", answer.lines().last().unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_and_the_words_count() {
        let check = |answer: &str, expect: Result<(), &str>| {
            assert_eq!(judge(answer.as_bytes(), "word"), expect.map_err(str::to_owned));
        };
        check("HTTP/1.1 200 OK\r\n\r\na word", Ok(()));
        check("HTTP/1.1 503 No\r\n\r\na word", Err("the response is HTTP/1.1 503 No"));
        check("HTTP/1.1 200 OK\r\n\r\nnone", Err("its response does not contain word: none"));
        check("", Err("the response is nothing"));
    }
}
