//! A TLS handshake, which rustls does; and one step of it: what rustls found in the received bytes, or has to send, and where that goes.

use baton_records::{Layer, PLAIN_MAX};
use baton_tls::agreed::{self, TicketKeeper, TrafficSecrets};
use baton_tls::rustls::client::UnbufferedClientConnection;
use baton_tls::rustls::server::UnbufferedServerConnection;
use baton_tls::rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use baton_tls::rustls::{self, CommonState, ProtocolVersion};

use crate::stream::records::{RecordPool, Records};

/// A handshake.
pub struct Agreeing {
    connection: TlsConnection,
    secrets: TrafficSecrets,
    /// Plain bytes of each record behind it.
    record_len: usize,
}

/// One end of a TLS connection.
enum TlsConnection {
    /// Towards a client.
    Server(UnbufferedServerConnection),
    /// Towards a server.
    Client(UnbufferedClientConnection),
}

impl Agreeing {
    /// Towards a client, which gets `record_len` bytes in each record.
    pub fn with_client(connection: UnbufferedServerConnection, record_len: usize) -> Agreeing {
        Agreeing { connection: TlsConnection::Server(connection), secrets: TrafficSecrets::default(), record_len }
    }

    /// Towards a server.
    pub fn with_server(connection: UnbufferedClientConnection) -> Agreeing {
        Agreeing {
            connection: TlsConnection::Client(connection),
            secrets: TrafficSecrets::default(),
            record_len: PLAIN_MAX,
        }
    }

    /// What both kinds of connections have.
    pub fn common(&self) -> &CommonState {
        match &self.connection {
            TlsConnection::Server(server) => server,
            TlsConnection::Client(client) => client,
        }
    }

    /// Whether it is towards a server.
    pub fn is_client(&self) -> bool {
        matches!(self.connection, TlsConnection::Client(_))
    }

    /// Whether it is complete, and all that belongs to it was given out.
    pub fn is_agreed(&self) -> bool {
        !self.common().is_handshaking() && !self.common().wants_write()
    }

    /// Goes on with records.
    ///
    /// # Errors
    /// It is not complete.
    pub fn into_layer(self) -> Result<(Layer, Option<TicketKeeper>), rustls::Error> {
        let Agreeing { connection, secrets, record_len } = self;
        match connection {
            TlsConnection::Server(server) => Ok((agreed::server_layer(server, secrets, record_len)?, None)),
            TlsConnection::Client(client) => agreed::client_layer(client, secrets),
        }
    }

    /// Works through what was received, as far as one thing.
    pub fn step(
        &mut self,
        received: &mut Option<Records>,
        places: &mut HandshakePlaces<'_>,
    ) -> Result<HandshakeStep, rustls::Error> {
        // Once it is complete, what was received is not for rustls: a message in it might be incomplete.
        let is_handshaking = self.common().is_handshaking();
        let bytes = received.as_mut().filter(|_| is_handshaking).map(Records::bytes_mut).unwrap_or_default();
        let Agreeing { connection, secrets, .. } = self;
        let (discard, step) = match connection {
            TlsConnection::Client(client) => places.settle(secrets.catch(|| client.process_tls_records(bytes))),
            TlsConnection::Server(server) => places.settle(secrets.catch(|| server.process_tls_records(bytes))),
        };
        if let Some(records) = received {
            records.consume(discard);
        }
        step
    }

    /// rustls has an alert ready, and gives it out before it looks at what was received once more.
    pub fn take_alert(&mut self, received: &mut Option<Records>, places: &mut HandshakePlaces<'_>) {
        while self.common().wants_write() {
            if !matches!(self.step(received, places), Ok(HandshakeStep::Again)) {
                break;
            }
        }
    }

    /// A client that shows no certificate where one is wanted gets handshake_failure in TLS 1.2 (RFC 5246 7.4.6); rustls sends
    /// certificate_required, which is of TLS 1.3 alone (RFC 8446 6.2).
    pub fn reword(&self, error: &rustls::Error, unsent: &mut Option<Records>) {
        const FATAL: [u8; 6] = [21, 3, 3, 0, 2, 2];
        const HANDSHAKE_FAILURE: u8 = 40;
        let is_old = self.common().protocol_version() == Some(ProtocolVersion::TLSv1_2);
        let is_wrong = is_old && *error == rustls::Error::NoCertificatesPresented;
        if let Some([before @ .., description @ 116]) = unsent.as_mut().map(Records::bytes_mut)
            && is_wrong
            && before.ends_with(&FATAL)
        {
            *description = HANDSHAKE_FAILURE;
        }
    }
}

/// What one step with the received bytes led to.
pub enum HandshakeStep {
    /// Look again.
    Again,
    /// The peer sent close_notify.
    Ended,
    /// Nothing, until more is received.
    More,
}

/// Where the outcome of a step goes.
pub struct HandshakePlaces<'a> {
    /// Lends what is needed.
    pub pool: &'a RecordPool,
    /// For decrypted bytes that followed the handshake directly.
    pub plain: &'a mut Option<Records>,
    /// For encrypted bytes.
    pub unsent: &'a mut Option<Records>,
}

impl HandshakePlaces<'_> {
    /// Does what rustls asks for. Bytes of the received ones that are used up, and what came of it.
    fn settle<D>(&mut self, status: UnbufferedStatus<'_, '_, D>) -> (usize, Result<HandshakeStep, rustls::Error>) {
        let UnbufferedStatus { mut discard, state } = status;
        let step = match state {
            Err(error) => Err(error),
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                let mut step = Ok(HandshakeStep::Again);
                while let Some(record) = traffic.next_record() {
                    match record {
                        Ok(record) => {
                            self.plain.get_or_insert_with(|| self.pool.take()).append(record.payload);
                            discard += record.discard;
                        }
                        Err(error) => step = Err(error),
                    }
                }
                step
            }
            Ok(ConnectionState::EncodeTlsData(mut record)) => {
                let unsent = self.unsent.get_or_insert_with(|| self.pool.take());
                let mut encoded = record.encode(unsent.room());
                if let Err(EncodeError::InsufficientSize(needed)) = &encoded {
                    encoded = record.encode(unsent.room_for(needed.required_size));
                }
                match encoded {
                    Ok(count) => {
                        unsent.filled(count);
                        Ok(HandshakeStep::Again)
                    }
                    Err(error) => Err(rustls::Error::General(error.to_string())),
                }
            }
            Ok(ConnectionState::TransmitTlsData(records)) => {
                // They are in `unsent`, in front of whatever follows.
                records.done();
                Ok(HandshakeStep::Again)
            }
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(HandshakeStep::Ended),
            Ok(_) => Ok(HandshakeStep::More),
        };
        (discard, step)
    }
}
