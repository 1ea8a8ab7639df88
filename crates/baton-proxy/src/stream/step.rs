//! A connection of rustls, and one step of it: what it found in the received bytes, or wants said, and where that goes.

use baton_tls::rustls::client::UnbufferedClientConnection;
use baton_tls::rustls::server::UnbufferedServerConnection;
use baton_tls::rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use baton_tls::rustls::{self, CommonState};

use crate::stream::records::{RecordPool, Records};

/// More than records add to the bytes of one write, unless they are made much shorter than usual. Bytes.
const OVERHEAD: usize = 1024;

/// One end of a TLS connection.
pub enum TlsConnection {
    /// Towards a client.
    Server(UnbufferedServerConnection),
    /// Towards a server.
    Client(UnbufferedClientConnection),
}

impl TlsConnection {
    /// What both kinds have.
    pub fn common(&self) -> &CommonState {
        match self {
            TlsConnection::Server(server) => server,
            TlsConnection::Client(client) => client,
        }
    }
}

impl From<UnbufferedServerConnection> for TlsConnection {
    fn from(server: UnbufferedServerConnection) -> TlsConnection {
        TlsConnection::Server(server)
    }
}

impl From<UnbufferedClientConnection> for TlsConnection {
    fn from(client: UnbufferedClientConnection) -> TlsConnection {
        TlsConnection::Client(client)
    }
}

/// What one step with the received bytes led to.
pub enum TlsStep {
    /// So many bytes are in the reader's room; there may be more in `plain`.
    Data(usize),
    /// Look again.
    Again,
    /// The peer said that it has said all.
    Ended,
    /// What was to be said is in `unsent`.
    Said,
    /// Nothing, until more is received.
    More,
}

/// What we have to say.
#[derive(Clone, Copy)]
pub enum Utterance<'a> {
    /// Nothing at the moment.
    Nothing,
    /// These bytes.
    Bytes(&'a [u8]),
    /// That there is no more (close_notify).
    End,
}

/// Where the outcome of a step goes.
pub struct Places<'a> {
    /// Lends what is needed.
    pub pool: &'a RecordPool,
    /// The reader's.
    pub room: &'a mut [u8],
    /// For decrypted bytes that do not fit into it.
    pub plain: &'a mut Option<Records>,
    /// For encrypted bytes.
    pub unsent: &'a mut Option<Records>,
    /// What we have to say, when it is our turn.
    pub say: Utterance<'a>,
}

impl Places<'_> {
    /// Puts decrypted bytes into the room, of which `used` bytes are taken already, and what does not fit into `plain`: how
    /// many are in the room.
    pub fn put(&mut self, payload: &[u8], used: usize) -> usize {
        let fits = payload.len().min(self.room.len() - used);
        self.room[used..used + fits].copy_from_slice(&payload[..fits]);
        if fits < payload.len() {
            self.plain.get_or_insert_with(|| self.pool.take()).append(&payload[fits..]);
        }
        fits
    }

    /// Does what rustls asks for. Bytes of the received ones that are used up, and what came of it.
    pub fn settle<D>(&mut self, status: UnbufferedStatus<'_, '_, D>) -> (usize, Result<TlsStep, rustls::Error>) {
        let UnbufferedStatus { mut discard, state } = status;
        let step = match state {
            Err(error) => Err(error),
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                let mut count = 0;
                let mut step = Ok(());
                while let Some(record) = traffic.next_record() {
                    match record {
                        Ok(record) => {
                            count += self.put(record.payload, count);
                            discard += record.discard;
                        }
                        Err(error) => step = Err(error),
                    }
                }
                step.map(|()| TlsStep::Data(count))
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
                        Ok(TlsStep::Again)
                    }
                    Err(error) => Err(rustls::Error::General(error.to_string())),
                }
            }
            Ok(ConnectionState::TransmitTlsData(records)) => {
                // They are in `unsent`, in front of whatever follows.
                records.done();
                Ok(TlsStep::Again)
            }
            Ok(ConnectionState::WriteTraffic(traffic)) => self.utter(traffic),
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(TlsStep::Ended),
            Ok(_) => Ok(TlsStep::More),
        };
        (discard, step)
    }

    /// Says what there is to be said.
    fn utter<D>(&mut self, mut traffic: WriteTraffic<'_, D>) -> Result<TlsStep, rustls::Error> {
        let (plain, mut size) = match self.say {
            Utterance::Nothing => return Ok(TlsStep::More),
            Utterance::Bytes(bytes) => (bytes, bytes.len() + OVERHEAD),
            Utterance::End => (&[][..], OVERHEAD),
        };
        let unsent = self.unsent.get_or_insert_with(|| self.pool.take_for(plain.len()));
        loop {
            let room = unsent.room_for(size);
            let written = match self.say {
                Utterance::End => traffic.queue_close_notify(room),
                Utterance::Bytes(_) | Utterance::Nothing => traffic.encrypt(plain, room),
            };
            match written {
                Ok(count) => {
                    unsent.filled(count);
                    return Ok(TlsStep::Said);
                }
                Err(EncryptError::InsufficientSize(needed)) if needed.required_size > size => {
                    size = needed.required_size;
                }
                Err(error) => return Err(rustls::Error::General(error.to_string())),
            }
        }
    }
}
