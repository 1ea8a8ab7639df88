//! The old process fails: it is killed at each step, stopped, or goes back on its word. What plays it is this test program
//! itself, started again as a process of its own: a number to be named, sockets to be taken, and a life to be lost.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};

use baton_control::handover::channel::{Channel, Parked};
use baton_control::handover::memory::ProcessMemory;
use baton_control::handover::message::{
    Connections, Give, Message, Refused, Released, Socket, Sockets, Staying, Take, Welcome,
};
use baton_control::handover::record::ConnectionRecord;
use baton_control::handover::wire::WireVersion;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;

use crate::rights::AS_NOBODY;
use crate::support::{PATIENCE, Proxy, free_address, frontend_counter, until};
use crate::{Client, config, formats, get, moving, origins};

/// Says to this program that it plays an old process: the step, and two addresses.
const PART: &str = "HANDOVER_TEST_GIVER";

/// What it counted before, in the sample of the first version.
const COUNTED: u64 = 41;

/// An old process that ends at some step.
pub struct Giver(Child);

/// Whose process it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Owner {
    /// Ours.
    Us,
    /// User nobody's.
    Nobody,
    /// Root's when it opened the first socket, nobody's from then on.
    Dropped,
}

impl Giver {
    /// It listens on both addresses, accepts nobody, and has been asked nothing.
    pub fn start(step: &str, first: SocketAddr, second: SocketAddr) -> Giver {
        Giver::start_as(Owner::Us, step, first, second)
    }

    /// Starts it as a process of this owner.
    pub fn start_as(owner: Owner, step: &str, first: SocketAddr, second: SocketAddr) -> Giver {
        let program = std::env::current_exe().expect("we run");
        let mut words: Vec<&OsStr> = match owner {
            Owner::Us | Owner::Dropped => Vec::new(),
            Owner::Nobody => AS_NOBODY.iter().map(OsStr::new).collect(),
        };
        words.push(program.as_os_str());
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .args(["--exact", "givers::plays_an_old_process_when_told_to", "--nocapture"])
            .env(PART, format!("{step} {first} {second} {owner:?}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It expects to be listened to, and nobody's is not.
            .stderr(if owner == Owner::Nobody { Stdio::null() } else { Stdio::inherit() })
            .spawn()
            .expect("we can be started again");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.ends_with("listening")), "it listens");
        Giver(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Tells it who takes over. Others ask too: who looks for the successor of a process that is gone asks everybody.
    pub fn meets(&mut self, taker: &Proxy) {
        let mut stdin = self.0.stdin.take().expect("it meets one");
        writeln!(stdin, "{}", taker.pid()).expect("it reads");
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn plays_an_old_process_when_told_to() {
    let Ok(part) = std::env::var(PART) else { return };
    let words: Vec<&str> = part.split(' ').collect();
    let listen = |word: &str| TcpListener::bind(word.parse::<SocketAddr>().expect("an address")).expect("it is free");
    let first = listen(words[1]);
    if words[3] == "Dropped" {
        nix::unistd::setgid(65534.into()).and_then(|()| nix::unistd::setuid(65534.into())).expect("we are root");
    }
    let sockets = [first, listen(words[2])];
    let name = UnixAddress::from_abstract_name(format!("baton-{}", std::process::id())).expect("a short name");
    let ours = UnixListener::bind_addr(&name).expect("nobody has our number");
    println!("listening");
    std::io::stdout().flush().expect("the test reads it");
    let mut taker = String::new();
    std::io::stdin().read_line(&mut taker).expect("the test says who it is");
    let mut askers = ours.incoming().map(|asker| asker.expect("the test asks"));
    let is_meant = |asker: &UnixStream| {
        let peer = getsockopt(asker, PeerCredentials).expect("a unix socket");
        peer.pid().to_string() == taker.trim()
    };
    let mut asker = askers.find(is_meant).expect("askers do not end");
    let mut line = String::new();
    BufReader::new(&asker).read_line(&mut line).expect("a line");
    assert_eq!(line, "{\"baton\":1,\"request\":\"handover\"}\n");
    end_if(words[0], "asked");
    asker.write_all(b"{\"baton\":1,\"reply\":\"handover\"}\n").expect("it listens");
    // Its one client.
    let front = usize::from(words[0] == "moving-sample-2");
    let client = words[0].starts_with("moving-").then(|| sockets[front].accept().expect("the test connects").0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = runtime.block_on(async {
        let mut channel = Parked::new(asker).resume().expect("a channel");
        play(words[0], &mut channel, &sockets).await;
        match client {
            Some(client) => play_mover(words[0], &mut channel, client, &sockets[front]).await,
            None => None,
        }
    });
    if let Some(mut client) = client {
        client.set_nonblocking(false).expect("it is ours");
        let _ = client.read(&mut [0; 1000]);
        let _ = client.write_all(RESPONSE);
    }
    // It goes on serving: everybody is told who answers. The taker made its descriptors of the sockets non-blocking, and
    // with them ours.
    sockets[0].set_nonblocking(false).expect("it is ours");
    loop {
        let (mut client, _) = sockets[0].accept().expect("somebody comes");
        let _ = client.read(&mut [0; 1000]);
        let _ = client.write_all(RESPONSE);
    }
}

/// What it responds to everybody.
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\nthe giver";

/// Its part once another process serves: the client, if it has it still.
async fn play_mover(
    step: &str,
    channel: &mut Channel,
    client: TcpStream,
    listening: &TcpListener,
) -> Option<TcpStream> {
    let web = listening.local_addr().expect("bound");
    let hear = async |channel: &mut Channel| channel.receive(PATIENCE).await.expect("the taker goes on");
    client.set_nonblocking(true).expect("a socket");
    let offer = |batch, connections| Message::Connections(Connections { batch, connections });
    let give = |batch| Message::Give(Give { batch, descriptors: 1 });
    if step == "moving-refused" {
        let later = ConnectionRecord {
            needs: serde_json::from_str("[\"later\"]").expect("words"),
            ..moving::offer(web, 1, "web")
        };
        let unknown = [moving::offer(web, 99, "web"), later, moving::offer(web, 1, "no-such")];
        say(channel, offer(1, unknown.into()), &[]).await;
        let reasons = ["unknown", "unknown", "no-listener"].map(str::to_owned);
        let staying = (0..).zip(reasons).map(|(at, reason)| Staying { at, reason }).collect();
        assert_eq!(hear(channel).await, Message::Take(Take { batch: 1, staying }));
        // It says that it has it nevertheless.
        say(channel, give(1), &[client.as_fd()]).await;
        return Some(client);
    }
    if let Some(format) = step.strip_prefix("moving-sample-") {
        let (record, server) = formats::recorded(format.parse().expect("a number"), web, &client);
        say(channel, offer(1, vec![record]), &[]).await;
        assert_eq!(hear(channel).await, Message::Take(Take { batch: 1, staying: Vec::new() }));
        let given: Vec<BorrowedFd<'_>> = [&client].into_iter().chain(&server).map(AsFd::as_fd).collect();
        let give = Message::Give(Give { batch: 1, descriptors: given.len() as u32 });
        say(channel, give, &given).await;
        return None;
    }
    if let Some(tls) = step.strip_prefix("moving-tls-") {
        let needs = serde_json::from_str("[\"tls\"]").expect("words");
        let tls = serde_json::from_str(tls).expect("a description of TLS");
        let record = ConnectionRecord { needs, tls: Some(tls), ..moving::offer(web, 1, "web") };
        say(channel, offer(1, vec![record]), &[]).await;
        let Message::Take(take) = hear(channel).await else { panic!("no reply") };
        if let [staying] = &take.staying[..] {
            assert_eq!(staying.reason, "unknown");
            return Some(client);
        }
        say(channel, give(1), &[client.as_fd()]).await;
        return None;
    }
    say(channel, offer(1, vec![moving::offer(web, 1, "web")]), &[]).await;
    end_if(step, "moving-offered");
    assert_eq!(hear(channel).await, Message::Take(Take { batch: 1, staying: Vec::new() }));
    end_if(step, "moving-taken");
    if step == "moving-silent" {
        // Until it is killed.
        std::future::pending::<()>().await;
    }
    if step == "moving-withdrawn" {
        say(channel, Message::Withdraw { batch: 1 }, &[]).await;
        say(channel, give(1), &[client.as_fd()]).await;
        return Some(client);
    }
    say(channel, give(1), &[client.as_fd()]).await;
    end_if(step, "moving-given");
    None
}

/// The old process's part, up to its end.
async fn play(step: &str, channel: &mut Channel, sockets: &[TcpListener]) {
    let hear = async |channel: &mut Channel| channel.receive(PATIENCE).await.expect("the taker goes on");
    let Message::Hello(hello) = hear(channel).await else { panic!("no hello") };
    assert_eq!(hello.versions, [2, 1]);
    end_if(step, "hello");
    if step == "version" {
        let refused =
            Refused { reason: "it supports versions [9] of the handover, not [2, 1]".into(), ..Refused::default() };
        return say(channel, Message::Refused(refused), &[]).await;
    }
    let pid = std::process::id();
    // A process of the version before chooses the one that it knows.
    let (step, version) =
        step.strip_suffix("-1").map_or((step, WireVersion::Frames), |step| (step, WireVersion::Messages));
    let number = if step == "unknown-version" { 3 } else { version.number() };
    let welcome = Welcome { version: number, pid, sockets: 2, state_bytes: 100, ..Welcome::default() };
    say(channel, Message::Welcome(welcome), &[]).await;
    if step == "unknown-version" {
        return;
    }
    channel.speak(version);
    end_if(step, "welcome");
    assert_eq!(hear(channel).await, Message::Send);
    for (number, socket) in sockets.iter().enumerate() {
        let address = socket.local_addr().expect("bound").to_string();
        let sockets = Sockets { sockets: vec![Socket { address, namespace: None, number: None }] };
        say(channel, Message::Sockets(sockets), &[socket.as_fd()]).await;
        end_if(step, ["some", "sockets"][number]);
    }
    assert_eq!(hear(channel).await, Message::Received);
    end_if(step, "received");
    if step == "newer" {
        say(channel, Message::Unknown, &[]).await;
    }
    if step == "reordered" {
        channel.speak(version);
        return say(channel, Message::State(Box::default()), &[]).await;
    }
    let state: ProcessMemory =
        serde_json::from_str(r#"{"counts":{"frontends":{"web":{"counters":{"req_tot":41}}}}}"#).unwrap();
    say(channel, Message::State(Box::new(state)), &[]).await;
    end_if(step, "state");
    assert!(matches!(hear(channel).await, Message::Ready(_)));
    end_if(step, "ready");
    if step == "late" {
        return say(channel, Message::Abort { reason: "no reply within 30 s".into() }, &[]).await;
    }
    say(channel, Message::Released(Released::default()), &[]).await;
    end_if(step, "released");
}

async fn say(channel: &mut Channel, message: Message, fds: &[BorrowedFd<'_>]) {
    channel.send(message, fds, PATIENCE).await.expect("the taker listens");
}

fn end_if(step: &str, here: &str) {
    if step == here {
        kill(Pid::this(), Signal::SIGKILL).expect("nothing comes after this");
    }
}

/// Kills the old process at `step`: the new one serves, with who waits in the queues if it has the sockets, and with what the
/// old one had counted if it has the state.
#[track_caller]
fn check_killed(step: &str, has_sockets: bool, has_state: bool) {
    let (_origins, servers) = origins(1);
    let (web, other) = (free_address(), free_address());
    let mut giver = Giver::start(step, web, other);
    let mut waiting = Client::connect(web);
    waiting.ask("/");
    let text = config(web, &servers).replace("default_backend", &format!("bind {other}\n default_backend"));
    let mut new = Proxy::begin(&[], &text, &["-sf", &giver.pid().to_string()]);
    giver.meets(&new);
    new.serves();
    if has_sockets {
        assert!(waiting.answer().starts_with("http/1.1 200"), "{step}");
    }
    drop(waiting);
    get(web);
    get(other);
    let counted = 2 + u64::from(has_sockets) + if has_state { COUNTED } else { 0 };
    until("all are counted", || frontend_counter(&new.status(), "web", "req_tot") == counted);
    let listeners = new.status().listeners;
    assert_eq!(listeners.len(), 2, "{step}: {listeners:?}");
}

#[test]
fn killed_before_the_sockets() {
    check_killed("asked", false, false);
    check_killed("hello", false, false);
    check_killed("welcome", false, false);
}

#[test]
fn killed_after_some_sockets() {
    check_killed("some", true, false);
    check_killed("sockets", true, false);
    check_killed("received", true, false);
}

#[test]
fn killed_after_the_state() {
    check_killed("state", true, true);
    check_killed("ready", true, true);
    check_killed("released", true, true);
}

#[test]
fn a_process_of_the_version_before_hands_over_what_it_has() {
    check_killed("sockets-1", true, false);
    check_killed("state-1", true, true);
    check_killed("released-1", true, true);
}

#[test]
fn what_a_newer_process_remembers_besides_is_left_out_and_said() {
    let (_origins, servers) = origins(1);
    let (web, other) = (free_address(), free_address());
    let mut giver = Giver::start("newer", web, other);
    let mut new = Proxy::begin(&[], &config(web, &servers), &["-sf", &giver.pid().to_string()]);
    giver.meets(&new);
    new.serves();
    until("it is said", || new.said().contains("sent the unknown message 'unknown' (frames: 1): ignored."));
    until("the rest is there", || frontend_counter(&new.status(), "web", "req_tot") == COUNTED);
}

#[test]
fn frames_that_do_not_follow_each_other_are_not_taken() {
    check_refused("reordered", "not a message: received frame 0 (state), expected frame 2. It keeps serving.");
}

#[test]
fn a_version_that_was_not_offered_is_not_spoken() {
    check_refused("unknown-version", "it chose version 3, which is not one of [2, 1]. It keeps serving.");
}

/// The new process ends with 1 and this reason, and the old one serves on.
#[track_caller]
fn check_refused(step: &str, reason: &str) {
    let (_origins, servers) = origins(1);
    let (web, other) = (free_address(), free_address());
    let mut giver = Giver::start(step, web, other);
    let new = Proxy::begin(&[], &config(web, &servers), &["-sf", &giver.pid().to_string()]);
    giver.meets(&new);
    let (status, said) = new.wait();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains(reason), "{said}");
    assert!(get(web).ends_with("the giver"), "its sockets are as they were");
}

#[test]
fn a_version_that_is_unknown_is_said() {
    check_refused("version", "it supports versions [9] of the handover, not [2, 1]. It keeps serving.");
}

#[test]
fn who_is_ready_too_late_takes_no_part() {
    check_refused("late", "keeps serving: no reply within 30 s");
}

#[test]
fn an_old_process_that_does_not_answer_is_not_waited_for() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&config(web, &servers));
    old.signal(Signal::SIGSTOP);
    let new = old.spawn_beside(&["-sf", &old.pid().to_string()]);
    let (status, said) = new.wait();
    old.signal(Signal::SIGCONT);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("no reply within 5 s"), "{said}");
    get(web);
    let _new = old.replace(&[]);
    assert!(old.wait().0.success());
    get(web);
}
