//! A plain TCP echo.

use std::io;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::lane::Stop;

/// Bytes echoed at a time.
const BUFFER: usize = 16 * 1024;

/// Sends back every byte until the client closes its side or a stop is asked for.
pub(super) async fn echo(mut stream: TcpStream, mut stop: Stop) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = tokio::select! {
            biased;
            length = stream.read(&mut buffer) => length?,
            () = stop.asked() => break,
        };
        if length == 0 {
            break;
        }
        stream.write_all(&buffer[..length]).await?;
    }
    stream.shutdown().await
}
