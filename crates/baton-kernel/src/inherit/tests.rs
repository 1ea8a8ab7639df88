use std::io::{Read, Seek, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use super::*;
use crate::Listening;
use crate::testing::{address, listener};

#[test]
fn payload_and_descriptors_arrive_in_order_and_close_on_exec() {
    let (sender, receiver) = UnixStream::pair().unwrap();
    let files: Vec<_> = (0..600u32)
        .map(|number| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&number.to_be_bytes()).unwrap();
            file
        })
        .collect();
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    for batch in borrowed.chunks(FDS_MAX) {
        send_all(&sender, format!("{:03}", batch.len()).as_bytes(), batch).unwrap();
    }
    drop(sender);
    let mut arrived = Vec::new();
    loop {
        let mut payload = [0; 64];
        let Received { length, fds } = receive(&receiver, &mut payload).unwrap();
        if length == 0 {
            break;
        }
        assert_eq!(&payload[..length], format!("{:03}", fds.len()).as_bytes(), "messages do not merge");
        arrived.extend(fds);
    }
    assert_eq!(arrived.len(), files.len());
    for (expect, fd) in (0u32..).zip(arrived) {
        let flags = FdFlag::from_bits_truncate(fcntl(&fd, FcntlArg::F_GETFD).unwrap());
        assert!(flags.contains(FdFlag::FD_CLOEXEC));
        let mut number = [0; 4];
        let mut file = std::fs::File::from(fd);
        file.rewind().unwrap();
        file.read_exact(&mut number).unwrap();
        assert_eq!(u32::from_be_bytes(number), expect);
    }
}

#[test]
fn a_listening_socket_moves_with_its_queue() {
    let (sender, receiver) = UnixStream::pair().unwrap();
    let listening = listener("127.0.0.1:0");
    let mut client = TcpStream::connect(address(&listening)).unwrap();
    send(&sender, b"l", &[listening.as_fd()]).unwrap();
    let local = listening.local().clone();
    drop(listening); // in flight, the socket lives on
    let fds = receive(&receiver, &mut [0; 8]).unwrap().fds;
    let listening = Listening::adopt(fds.into_iter().next().unwrap()).unwrap();
    assert_eq!(listening.local(), &local);
    let (accepted, _) = listening.accept().unwrap().expect("whoever waited still waits");
    TcpStream::from(accepted).write_all(b"x").unwrap();
    client.read_exact(&mut [0; 1]).unwrap();
}

#[test]
fn a_small_buffer_reads_the_rest_later_without_descriptors() {
    let (sender, receiver) = UnixStream::pair().unwrap();
    send(&sender, b"abcdef", &[sender.as_fd()]).unwrap();
    send(&sender, b"g", &[]).unwrap();
    let mut payload = [0; 4];
    let first = receive(&receiver, &mut payload).unwrap();
    assert_eq!((first.length, first.fds.len(), &payload[..]), (4, 1, &b"abcd"[..]));
    let second = receive(&receiver, &mut payload).unwrap();
    assert_eq!((second.length, second.fds.len(), &payload[..3]), (3, 0, &b"efg"[..]));
}

#[test]
fn unread_descriptors_are_closed_with_the_socket() {
    let (sender, receiver) = UnixStream::pair().unwrap();
    let (passed, other) = UnixStream::pair().unwrap();
    send(&sender, b"x", &[passed.as_fd()]).unwrap();
    drop((passed, receiver));
    assert_eq!((&other).read(&mut [0; 1]).unwrap(), 0, "nobody holds the other end any more");
}

#[test]
fn what_cannot_be_sent_or_received_is_an_error() {
    let (sender, receiver) = UnixStream::pair().unwrap();
    let invalid = Some(io::ErrorKind::InvalidInput);
    assert_eq!(send(&sender, b"", &[]).err().map(|error| error.kind()), invalid);
    let many = vec![sender.as_fd(); FDS_MAX + 1];
    assert_eq!(send(&sender, b"x", &many).err().map(|error| error.kind()), invalid);
    receiver.set_nonblocking(true).unwrap();
    let error = io::Error::from(receive(&receiver, &mut [0; 8]).unwrap_err());
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    drop(receiver);
    assert_eq!(send(&sender, b"x", &[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}
