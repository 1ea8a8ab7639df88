use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::*;
use crate::netns;

/// The longest wait for the kernel and for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `work` in a network namespace of its own, with a BPF file system that nobody else sees.
pub(in crate::bpf) fn apart(work: impl FnOnce(&Path) + Send) {
    let folder = tempfile::tempdir().unwrap();
    let outcome = netns::in_new(|| {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        mount(Some("bpf"), folder.path(), Some("bpf"), MsFlags::empty(), none)?;
        work(folder.path());
        io::Result::Ok(())
    });
    if let Ok(Err(error)) | Err(error) = outcome {
        eprintln!("SKIPPED: no right to a network namespace and a BPF file system ({error})");
    }
}

/// What each of some listeners says to its first connection.
fn says(listener: TcpListener, word: &'static str) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = io::Write::write_all(&mut stream, word.as_bytes());
        }
    })
}

fn ask(address: &str) -> Option<String> {
    let mut answer = String::new();
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream.read_to_string(&mut answer).expect("it answers");
    Some(answer)
}

const FOUR: [Slot; 2] = [Slot { colour: 0, is_six: false }, Slot { colour: 1, is_six: false }];
const SIX: Slot = Slot { colour: 0, is_six: true };

#[test]
fn addresses_are_kept_as_they_are() {
    for text in ["0.0.0.0:80", "127.0.0.1:8080", "[::]:443", "[2001:db8::1]:1"] {
        let wanted: SocketAddr = text.parse().unwrap();
        assert_eq!(address(&place(&wanted)), wanted);
    }
}

#[test]
fn new_connections_go_to_the_active_colour() {
    apart(|mounted| {
        let choice = Choice::at(&mounted.join("baton/test"));
        assert_eq!(choice.active().unwrap(), None);
        let blue = TcpListener::bind("127.0.0.1:8000").unwrap();
        let green = TcpListener::bind("127.0.0.1:8001").unwrap();
        let six = TcpListener::bind("[::1]:8000").unwrap();
        let places = ["0.0.0.0:80", "127.0.0.9:81", "[::]:80"].map(|text| text.parse().unwrap());
        let sockets = [(FOUR[0], blue.as_fd()), (FOUR[1], green.as_fd()), (SIX, six.as_fd())];
        assert_eq!(ask("127.0.0.1:80"), None);
        choice.install(&places, &sockets, 0).unwrap();
        says(blue.try_clone().unwrap(), "blue");
        says(green.try_clone().unwrap(), "green");
        says(six, "six");
        assert_eq!(choice.active().unwrap(), Some(0));
        let mut there = choice.places().unwrap();
        there.sort();
        assert_eq!(there, places);
        assert_eq!(ask("127.0.0.1:80").as_deref(), Some("blue"));
        assert_eq!(ask("127.0.0.5:80").as_deref(), Some("blue"), "any address");
        assert_eq!(ask("127.0.0.9:81").as_deref(), Some("blue"));
        assert_eq!(ask("127.0.0.1:81"), None, "only the one");
        assert_eq!(ask("[::1]:80").as_deref(), Some("six"));
        let counted = [FOUR[0], FOUR[1], SIX].map(|slot| choice.count(slot).unwrap());
        assert_eq!(counted, [3, 0, 1], "those who asked elsewhere are not counted");
        // Another command, later: all it has is the folder.
        let later = Choice::at(&mounted.join("baton/test"));
        later.activate(1).unwrap();
        assert_eq!((ask("127.0.0.1:80").as_deref(), later.active().unwrap()), (Some("green"), Some(1)));
        assert_eq!(ask("[::1]:80"), None, "green has no socket for IPv6: as if we were not there");
        // Set up again, with other addresses: what is there is changed.
        later.install(&places[..1], &[], 0).unwrap();
        assert_eq!((ask("127.0.0.1:80").as_deref(), ask("127.0.0.9:81")), (Some("blue"), None));
        let cookie = SockRef::from(&blue).cookie().unwrap();
        assert_eq!(later.cookie(FOUR[0]).unwrap(), Some(cookie));
        later.put(FOUR[0], green.as_fd()).unwrap();
        assert_eq!(ask("127.0.0.1:80").as_deref(), Some("green"));
        later.remove().unwrap();
        later.remove().unwrap();
        assert_eq!(ask("127.0.0.1:80"), None);
        assert!(!later.exists().unwrap());
    });
}

#[test]
fn what_is_broken_is_told_and_mended() {
    apart(|mounted| {
        let choice = Choice::at(&mounted.join("baton/test"));
        let blue = TcpListener::bind("127.0.0.1:8000").unwrap();
        let sockets = [(FOUR[0], blue.as_fd())];
        let places = ["127.0.0.1:80".parse().unwrap()];
        choice.install(&places, &sockets, 0).unwrap();
        fs::remove_file(mounted.join("baton/test/link")).unwrap();
        assert!(choice.active().unwrap_err().to_string().contains("link"));
        // The kernel detaches a program whose last pin was removed a moment later.
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect("127.0.0.1:80").is_ok() {
            // With a full queue the next connect would wait for minutes.
            blue.accept().unwrap();
            assert!(Instant::now() < end, "it is still attached");
        }
        choice.install(&places, &sockets, 0).unwrap();
        assert!(TcpStream::connect("127.0.0.1:80").is_ok());
        // A socket that is no listener is refused, and nothing changes.
        let connected = TcpStream::connect("127.0.0.1:8000").unwrap();
        let _ = choice.put(FOUR[0], connected.as_fd());
        let many = vec![places[0]; PLACES_MAX + 1];
        assert!(choice.install(&many, &sockets, 0).unwrap_err().to_string().contains("64"));
        choice.remove().unwrap();
    });
}

#[test]
fn a_link_of_another_namespace_is_not_taken_for_ours() {
    apart(|mounted| {
        let choice = Choice::at(&mounted.join("baton/test"));
        let places = ["127.0.0.1:80".parse().unwrap()];
        netns::in_new(|| {
            let listener = TcpListener::bind("127.0.0.1:8000").unwrap();
            choice.install(&places, &[(FOUR[0], listener.as_fd())], 0).unwrap();
            assert_eq!(choice.active().unwrap(), Some(0));
        })
        .unwrap();
        // It has ended by now, or will in a moment; its number may be anybody's.
        let said = choice.active().unwrap_err().to_string();
        assert!(said.contains("network namespace"), "{said}");
        let listener = TcpListener::bind("127.0.0.1:8000").unwrap();
        choice.install(&places, &[(FOUR[0], listener.as_fd())], 0).unwrap();
        assert_eq!(choice.active().unwrap(), Some(0));
        assert!(TcpStream::connect("127.0.0.1:80").is_ok());
        choice.remove().unwrap();
    });
}

#[test]
fn without_a_bpf_file_system_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let choice = Choice::at(&folder.path().join("baton/test"));
    let error = choice.install(&[], &[], 0).unwrap_err().to_string();
    assert!(error.contains("mount -t bpf"), "{error}");
    assert!(!choice.exists().unwrap());
}
