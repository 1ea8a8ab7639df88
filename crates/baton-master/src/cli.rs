//! The socket of `-S` (management guide, 9.4): who the processes are, a reload with its outcome, and the runtime API of a
//! worker behind a prefix (`@1 show info`).
//!
//! A session lives in a task of its own; what it wants to know of the master it asks by a question. Commands for a worker
//! go over a connection made for each of them, which the worker serves like one of its `stats socket`.

mod address;
mod prefix;
mod proc;
mod session;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use baton_control::listeners;
use baton_control::operators::Connection;
use baton_control::protocol::Reply;
use baton_kernel::watch::SharedSocket;
use baton_kernel::{ListenOptions, Listening, listen, watch};
use baton_model::{AccessLevel, Author, StatsSocket};
use socket2::SockRef;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc, oneshot};

pub use self::address::parse;
pub(crate) use self::prefix::Target;
pub(crate) use self::proc::{One, Processes};

/// Sessions at once; further ones wait in the kernel's queue.
const SESSIONS_MAX: usize = 32;
/// Pause after the system refused us a descriptor.
const PAUSE_WITHOUT_DESCRIPTORS: Duration = Duration::from_millis(100);

/// What a session wants of the master. Who asks and leaves is no error.
#[derive(Debug)]
pub(crate) enum Question {
    /// `show proc`.
    Processes(oneshot::Sender<Processes>),
    /// `show startup-logs`.
    Logs(oneshot::Sender<String>),
    /// `reload`; answered when it is done.
    Reload(oneshot::Sender<Reply>),
    /// A connection to a worker's runtime API, and its process id.
    Worker(Target, AccessLevel, Author, oneshot::Sender<Option<(i32, Option<UnixStream>)>>),
}

/// Where `-S` listens.
#[derive(Debug)]
pub struct Cli {
    listening: Listening,
    socket: StatsSocket,
}

impl Cli {
    /// Opens the socket.
    ///
    /// # Errors
    /// A sentence.
    pub fn open(socket: StatsSocket) -> Result<Cli, String> {
        let places = &socket.bind.options.socket;
        let options = ListenOptions {
            mode: places.mode,
            uid: places.uid,
            gid: places.gid,
            exclusive: true,
            ..ListenOptions::default()
        };
        let endpoint = listeners::endpoint(&socket.bind.address);
        let listening = listen::open(&endpoint, &options).map_err(|error| error.to_string())?;
        Ok(Cli { listening, socket })
    }

    /// Takes up a socket that was open before this binary began.
    ///
    /// # Errors
    /// A sentence.
    pub fn adopt(fd: OwnedFd, socket: StatsSocket) -> Result<Cli, String> {
        Ok(Cli { listening: Listening::adopt(fd).map_err(|error| error.to_string())?, socket })
    }

    /// A second descriptor of the socket.
    pub(crate) fn another(&self) -> io::Result<OwnedFd> {
        self.listening.as_fd().try_clone_to_owned()
    }

    /// Accepts sessions until the master is gone. `events` takes their questions.
    pub(crate) async fn serve<E: From<Question> + 'static>(
        self,
        version: String,
        events: mpsc::UnboundedSender<E>,
    ) -> io::Result<()> {
        let (level, address) = (self.socket.level, self.socket.bind.address);
        let socket = SharedSocket::at(&[self.listening.into_fd()].into(), 0).ok_or(io::ErrorKind::NotConnected)?;
        let fd = watch::listening(socket)?;
        let room = Arc::new(Semaphore::new(SESSIONS_MAX));
        loop {
            let Ok(place) = room.clone().acquire_owned().await else { return Ok(()) };
            let mut ready = fd.readable().await?;
            let flags = nix::libc::SOCK_NONBLOCK | nix::libc::SOCK_CLOEXEC;
            match SockRef::from(fd.get_ref()).accept4(flags) {
                Ok((socket, _)) => {
                    let (events, version) = (events.clone(), version.clone());
                    if let Ok(connection) = Connection::new(socket) {
                        let by = connection.author(&address);
                        tokio::task::spawn_local(async move {
                            session::serve(connection, (level, by), &version, events).await;
                            drop(place);
                        });
                    }
                }
                Err(error) => match error.raw_os_error() {
                    Some(nix::libc::EAGAIN) => ready.clear_ready(),
                    Some(nix::libc::ECONNABORTED | nix::libc::EINTR | nix::libc::EPROTO) => {}
                    _ => tokio::time::sleep(PAUSE_WITHOUT_DESCRIPTORS).await,
                },
            }
        }
    }
}
