//! A check through a SOCKS4 proxy (`check-via-socks4`).

use std::net::SocketAddr;

use baton_model::Address;
use baton_proxy::{SOCKS4_RESPONSE_BYTES, socks4_granted, socks4_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::Status;
use crate::patience::{Exhausted, Patience};
use crate::sockets::Stream;

/// Has the proxy at the other end of a connection open one to the server.
pub(crate) async fn introduce(
    stream: &mut dyn Stream,
    server: &Address,
    patience: &mut Patience,
) -> Result<(), (Status, &'static str)> {
    let Address::Inet(SocketAddr::V4(server)) = server else {
        return Err((Status::L4Connection, "General socket error (Invalid argument)"));
    };
    let mut response = [0; SOCKS4_RESPONSE_BYTES];
    let exchange = async {
        stream.write_all(&socks4_request(*server)).await?;
        stream.read_exact(&mut response).await
    };
    match patience.wait(exchange).await {
        Err(Exhausted) => Err((Status::L7Timeout, "")),
        Ok(Err(_)) => Err((Status::SocketError, "SOCKS4 Proxy handshake aborted by server")),
        Ok(Ok(_)) if socks4_granted(response) => Ok(()),
        Ok(Ok(_)) => Err((Status::SocketError, "SOCKS4 Proxy deny the request")),
    }
}
