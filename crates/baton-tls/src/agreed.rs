//! From a handshake of rustls to records of our own: what both ends agreed on is taken out of rustls as soon as it is complete.
//!
//! rustls gives keys, nonces and numbers of records. The traffic secrets of TLS 1.3, which alone make the keys that follow, it gives only to a
//! [`KeyLog`], while the connection takes a step: ours hands them to whoever has this step made ([`TrafficSecrets::catch`]), and to nobody else.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use baton_records::{Cipher, Keys, Layer, PLAIN_MAX, Role, Secret};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::{ClientConfig, ConnectionTrafficSecrets, Error, ExtractedSecrets, KeyLog, ProtocolVersion, ServerConfig};

/// What rustls counts in the length of a record beside the plain bytes: its header.
const RECORD_HEADER: usize = 5;

thread_local! {
    /// Of the connection that takes a step on this thread.
    static CAUGHT: RefCell<Option<TrafficSecrets>> = const { RefCell::new(None) };
}

/// The traffic secrets of one connection, as far as its handshake has come; those of TLS 1.2 are not known by these names.
#[derive(Debug, Default)]
pub struct TrafficSecrets {
    client: Option<Secret>,
    server: Option<Secret>,
}

impl TrafficSecrets {
    /// Makes a step of a connection, and keeps the secrets that come of it.
    pub fn catch<T>(&mut self, step: impl FnOnce() -> T) -> T {
        CAUGHT.set(Some(std::mem::take(self)));
        let outcome = step();
        *self = CAUGHT.take().unwrap_or_default();
        outcome
    }
}

/// Has no file and no memory: secrets go to the step in which they were made, or nowhere.
#[derive(Debug)]
struct Catching;

impl Catching {
    fn place<'a>(secrets: &'a mut TrafficSecrets, label: &str) -> Option<&'a mut Option<Secret>> {
        match label {
            "CLIENT_TRAFFIC_SECRET_0" => Some(&mut secrets.client),
            "SERVER_TRAFFIC_SECRET_0" => Some(&mut secrets.server),
            _ => None,
        }
    }
}

impl KeyLog for Catching {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        CAUGHT.with_borrow_mut(|caught| {
            if let Some(place) = caught.as_mut().and_then(|secrets| Catching::place(secrets, label)) {
                *place = Secret::new(secret);
            }
        });
    }

    fn will_log(&self, label: &str) -> bool {
        CAUGHT
            .with_borrow_mut(|caught| caught.as_mut().is_some_and(|secrets| Catching::place(secrets, label).is_some()))
    }
}

/// Lets what is agreed on with clients be taken out.
pub fn release_server_keys(config: &mut ServerConfig) {
    config.enable_secret_extraction = true;
    config.key_log = Arc::new(Catching);
}

/// Lets what is agreed on with servers be taken out.
pub fn release_client_keys(config: &mut ClientConfig) {
    config.enable_secret_extraction = true;
    config.key_log = Arc::new(Catching);
}

/// Plain bytes of each record to a client.
pub fn record_len(config: &ServerConfig) -> usize {
    config.max_fragment_size.map_or(PLAIN_MAX, |size| size.saturating_sub(RECORD_HEADER))
}

/// Takes what was agreed on with a client out of rustls, which has nothing more to send. What was received and rustls has not used
/// is not for rustls any more.
///
/// # Errors
/// The handshake is not complete, or its settings were not given to [`release_server_keys`].
pub fn server_layer(
    connection: UnbufferedServerConnection,
    secrets: TrafficSecrets,
    record_len: usize,
) -> Result<Layer, Error> {
    let (extracted, kernel) = connection.dangerous_into_kernel_connection()?;
    let traffic = [secrets.server, secrets.client];
    layer(Role::Server, kernel.protocol_version(), extracted, traffic, record_len)
}

/// Takes what was agreed on with a server out of rustls, as [`server_layer`] does for clients, with what keeps the tickets that come later.
///
/// # Errors
/// As [`server_layer`].
pub fn client_layer(
    connection: UnbufferedClientConnection,
    secrets: TrafficSecrets,
) -> Result<(Layer, Option<TicketKeeper>), Error> {
    let (extracted, kernel) = connection.dangerous_into_kernel_connection()?;
    let version = kernel.protocol_version();
    let traffic = [secrets.client, secrets.server];
    let layer = layer(Role::Client, version, extracted, traffic, PLAIN_MAX)?;
    // Before TLS 1.3 tickets are part of the handshake.
    let keeper = TicketKeeper { kernel: Box::new(kernel), has_some: false };
    Ok((layer, (version == ProtocolVersion::TLSv1_3).then_some(keeper)))
}

fn layer(
    role: Role,
    version: ProtocolVersion,
    extracted: ExtractedSecrets,
    [sealing, opening]: [Option<Secret>; 2],
    record_len: usize,
) -> Result<Layer, Error> {
    let ExtractedSecrets { tx: (sealed, tx), rx: (opened, rx) } = extracted;
    let agreed = match (parts(&tx), parts(&rx)) {
        (Some((cipher, tx_key, tx_iv)), Some((same, rx_key, rx_iv))) if cipher == same => match (sealing, opening) {
            (Some(sealing), Some(opening)) if version == ProtocolVersion::TLSv1_3 => {
                let places = [(tx_key, tx_iv, sealed), (rx_key, rx_iv, opened)];
                Layer::of_secrets(role, cipher, [sealing, opening], places, record_len)
            }
            (None, None) if version == ProtocolVersion::TLSv1_2 => {
                let keys =
                    |key, iv: &[u8], sequence| Some(Keys::Tls12(Secret::new(key)?, iv.try_into().ok()?, sequence));
                match (keys(tx_key, tx_iv, sealed), keys(rx_key, rx_iv, opened)) {
                    (Some(sealing), Some(opening)) => Layer::new(role, cipher, sealing, opening, record_len),
                    _ => None,
                }
            }
            _ => None,
        },
        _ => None,
    };
    agreed.ok_or_else(|| Error::General("rustls gave no keys".into()))
}

fn parts(secrets: &ConnectionTrafficSecrets) -> Option<(Cipher, &[u8], &[u8])> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => Some((Cipher::Aes128Gcm, key.as_ref(), iv.as_ref())),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => Some((Cipher::Aes256Gcm, key.as_ref(), iv.as_ref())),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            Some((Cipher::Chacha20Poly1305, key.as_ref(), iv.as_ref()))
        }
        _ => None,
    }
}

/// Keeps session tickets that a server sends behind the handshake (RFC 8446 4.6.1), where its next connections find them.
pub struct TicketKeeper {
    kernel: Box<KernelConnection<ClientConnectionData>>,
    has_some: bool,
}

impl TicketKeeper {
    /// Keeps one; `false`: it is none.
    pub fn keep(&mut self, ticket: &[u8]) -> bool {
        self.has_some = true;
        self.kernel.handle_new_session_ticket(ticket).is_ok()
    }

    /// Whether tickets have come: those of one server come together.
    pub fn has_some(&self) -> bool {
        self.has_some
    }
}

impl fmt::Debug for TicketKeeper {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("TicketKeeper")
    }
}
