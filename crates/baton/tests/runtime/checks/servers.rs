//! Servers that follow a script on each connection.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

/// One thing that a server does.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// Reads what comes next.
    Read,
    /// Sends this.
    Send(&'static [u8]),
    /// Waits so that what was sent is received by itself.
    Pause(u64),
    /// Closes.
    Close,
    /// Closes with a reset.
    Reset,
    /// Reads until the client closes.
    Hold,
}

/// A server on a port of the system's choice; it ends with the test's process.
pub struct Scripted {
    pub port: u16,
    received: Arc<Mutex<Vec<u8>>>,
    /// A port that is bound and not listened on.
    _bound: Option<socket2::Socket>,
}

impl Scripted {
    pub fn start(script: Vec<Act>) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let of_first = Arc::clone(&received);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Ok(stream) = stream else { return };
                let (script, received) = (script.clone(), Arc::clone(&of_first));
                thread::spawn(move || serve(stream, &script, (number == 0).then_some(&*received)));
            }
        });
        Scripted { port, received, _bound: None }
    }

    /// A port that refuses connections, and that nobody else gets.
    pub fn nobody() -> Scripted {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
        socket.bind(&any.into()).expect("a port");
        let port = socket.local_addr().ok().and_then(|address| address.as_socket()).expect("it is bound").port();
        Scripted { port, received: Arc::default(), _bound: Some(socket) }
    }

    /// What came by the first connection.
    pub fn received(&self) -> String {
        let received = self.received.lock().expect("no thread panics with it");
        received.iter().flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect()
    }
}

/// Errors end a connection: the client may be gone.
fn serve(mut stream: TcpStream, script: &[Act], received: Option<&Mutex<Vec<u8>>>) {
    let note = |bytes: &[u8]| {
        if let Some(received) = received {
            received.lock().expect("no thread panics with it").extend_from_slice(bytes);
        }
    };
    let mut buffer = [0; 4096];
    for act in script {
        match act {
            Act::Read => match stream.read(&mut buffer) {
                Ok(count) => note(&buffer[..count]),
                Err(_) => return,
            },
            Act::Send(bytes) => {
                if stream.write_all(bytes).is_err() {
                    return;
                }
            }
            Act::Pause(ms) => thread::sleep(Duration::from_millis(*ms)),
            Act::Close => return,
            Act::Reset => {
                let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                return;
            }
            Act::Hold => {
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    note(&buffer[..count]);
                }
                return;
            }
        }
    }
}
