//! A plain TCP echo.

use std::io;

use super::peer::OriginStream;
use crate::lane::Stop;

/// Sends back every byte until the client closes its side or a stop is asked for.
pub(super) async fn echo(mut peer: OriginStream, mut stop: Stop) -> io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let open = tokio::select! {
            biased;
            open = peer.read(&mut bytes) => open?,
            () = stop.asked() => false,
        };
        if !open {
            return peer.shutdown().await;
        }
        peer.write_all(&bytes).await?;
    }
}
