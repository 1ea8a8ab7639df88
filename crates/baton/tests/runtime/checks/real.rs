//! Checks of real servers: MariaDB, PostgreSQL, Redis, an SMTP server, slapd and an AMQP broker, each while it runs, with a connection that is cut
//! after its first bytes, as a process that stands still from the beginning or after its first bytes, and after its end. All start at once, on loopback
//! ports, with their files in a folder of the test.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};

use crate::support::{free_address, until};

use super::relay::{Break, Relay};
use super::{Case, compare, gone};

/// A running server; killed when dropped.
struct Real {
    child: Child,
    port: u16,
}

impl Real {
    /// Starts it and waits until it listens.
    fn start(mut command: Command, port: u16) -> Real {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let real = Real { child, port };
        until("a server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        real
    }
}

impl Real {
    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().expect("a process has a number"))
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it runs");
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        // One that has ended has what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program in the folders where Debian has those of servers.
fn program(name: &str) -> PathBuf {
    let postgres =
        fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|dir| dir.path().join("bin"));
    let folders = ["/usr/sbin", "/usr/bin"].map(PathBuf::from);
    let found = folders.into_iter().chain(postgres).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is installed by scripts/setup test"))
}

/// PostgreSQL refuses to run as root.
fn as_user(user: &str, program: &Path) -> Command {
    if !Uid::effective().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--clear-groups", "--"]).arg(program);
    command
}

fn must(mut command: Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn mariadb(folder: &Path, port: u16) -> Real {
    let data = folder.join("mariadb");
    let mut install = Command::new(program("mariadb-install-db"));
    install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--user=root"]);
    must({
        install.arg(format!("--datadir={}", data.display()));
        install
    });
    let mut server = Command::new(program("mariadbd"));
    server.args(["--no-defaults", "--bind-address=127.0.0.1", "--user=root", &format!("--port={port}")]);
    server.arg(format!("--datadir={}", data.display()));
    server.arg(format!("--socket={}", folder.join("mariadb.sock").display()));
    Real::start(server, port)
}

fn postgresql(folder: &Path, port: u16) -> Real {
    let data = folder.join("postgresql");
    fs::create_dir(&data).expect("the folder is ours");
    if let (true, Ok(Some(user))) = (Uid::effective().is_root(), User::from_name("postgres")) {
        std::os::unix::fs::chown(&data, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("root may");
    }
    let mut init = as_user("postgres", &program("initdb"));
    init.args(["-A", "trust", "-U", "haproxy", "--no-sync", "-D"]).arg(&data);
    must(init);
    let mut server = as_user("postgres", &program("postgres"));
    server.arg("-D").arg(&data).args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]);
    server.arg("-k").arg(&data);
    Real::start(server, port)
}

fn redis(folder: &Path, port: u16) -> Real {
    let mut server = Command::new(program("redis-server"));
    server.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string(), "--dir"]);
    server.arg(folder);
    Real::start(server, port)
}

fn smtp(port: u16) -> Real {
    let mut server = Command::new("/usr/bin/python3");
    server.args(["-m", "aiosmtpd", "-n", "-l", &format!("127.0.0.1:{port}")]);
    Real::start(server, port)
}

fn slapd(folder: &Path, port: u16) -> Real {
    let config = folder.join("slapd.conf");
    fs::write(&config, format!("pidfile {}/slapd.pid\n", folder.display())).expect("the folder is ours");
    let mut server = Command::new(program("slapd"));
    server.arg("-f").arg(&config).args(["-h", &format!("ldap://127.0.0.1:{port}"), "-d", "0"]);
    Real::start(server, port)
}

fn amqp(folder: &Path, port: u16) -> Real {
    let (config, admin) = (folder.join("garagemq.yaml"), free_address().port());
    let text = format!(
        "proto: amqp-rabbit\nusers: []\ntcp:\n  ip: 127.0.0.1\n  port: {port}\n  readBufSize: 65536\n  writeBufSize: 65536\nadmin:\n  \
         ip: 127.0.0.1\n  port: {admin}\nqueue:\n  shardSize: 8192\n  maxMessagesInRam: 1024\ndb:\n  defaultPath: {}/garagemq\n  engine: \
         badger\nvhost:\n  defaultPath: /\nsecurity:\n  passwordCheck: md5\nconnection:\n  channelsMax: 64\n  frameMaxSize: 65536\n",
        folder.display(),
    );
    fs::write(&config, text).expect("the folder is ours");
    let mut server = Command::new(program("garagemq"));
    server.arg("--config").arg(&config);
    Real::start(server, port)
}

/// A check of the server at a port.
fn check(name: &'static str, lines: &[&'static str], port: u16) -> Case {
    Case { port: Some(port), ..gone(name, lines) }
}

/// The header of AMQP 0-9-1, and the beginning of the frame `Connection.Start` in response.
const AMQP: [&str; 3] = [
    "option tcp-check",
    "tcp-check send-binary 414d515000000901",
    "tcp-check expect rbinary ^010000[0-9A-F]{8}000A000A",
];
/// The header of another version: the broker responds with that of its own, and closes.
const OTHER_AMQP: [&str; 3] =
    ["option tcp-check", "tcp-check send-binary 414d515000010000", "tcp-check expect rbinary ^010000"];

fn cases(ports: [u16; 6]) -> Vec<Case> {
    let [mariadb, postgresql, redis, smtp, slapd, amqp] = ports;
    vec![
        check("greeting", &["option mysql-check"], mariadb),
        check("root", &["option mysql-check user root"], mariadb),
        check("old_root", &["option mysql-check user root pre-41"], mariadb),
        check("nobody", &["option mysql-check user nobody post-41"], mariadb),
        check("postgresql", &["option pgsql-check user haproxy"], postgresql),
        check("no_role", &["option pgsql-check user nobody"], postgresql),
        check("redis", &["option redis-check"], redis),
        check(
            "redis_role",
            &["option tcp-check", "tcp-check send info\\ replication\\r\\n", "tcp-check expect string role:master"],
            redis,
        ),
        check("smtp", &["option smtpchk"], smtp),
        check("esmtp", &["option smtpchk EHLO test.example"], smtp),
        check("ldap", &["option ldap-check"], slapd),
        check("amqp", &AMQP, amqp),
        check("other_amqp", &OTHER_AMQP, amqp),
        // Another protocol than the server's.
        check("not_ldap", &["option ldap-check", "timeout check 300ms"], redis),
        check("not_smtp", &["option smtpchk", "timeout check 300ms"], redis),
    ]
}

/// A check of each server through a relay that breaks the connection after so many bytes of the server.
fn broken(
    servers: &[Real],
    how: impl Fn(usize) -> Break,
    after: &[(&'static str, usize, usize)],
) -> (Vec<Relay>, Vec<Case>) {
    let usual = cases(std::array::from_fn(|at| servers[at].port));
    let of = |name: &str| usual.iter().find(|case| case.name == name).expect("a case");
    let relays: Vec<Relay> =
        after.iter().map(|(_, at, bytes)| Relay::start(servers[*at].port, *bytes, how(*at))).collect();
    let cases = after.iter().zip(&relays).map(|((name, ..), relay)| check(name, &of(name).lines, relay.port)).collect();
    (relays, cases)
}

#[test]
fn real_servers() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    // PostgreSQL's user has to get through.
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), everyone).expect("the folder is ours");
    let ports = std::array::from_fn(|_| free_address().port());
    let path = folder.path();
    let servers: Vec<Real> = thread::scope(|scope| {
        let starting = [
            scope.spawn(move || mariadb(path, ports[0])),
            scope.spawn(move || postgresql(path, ports[1])),
            scope.spawn(move || redis(path, ports[2])),
            scope.spawn(move || smtp(ports[3])),
            scope.spawn(move || slapd(path, ports[4])),
            scope.spawn(move || amqp(path, ports[5])),
        ];
        starting.into_iter().map(|server| server.join().expect("it has started")).collect()
    });
    let running: Vec<u16> = servers.iter().map(|server| server.port).collect();
    assert_eq!(running, ports);
    compare(&cases(ports));
    // The end of the stream after some bytes of the server: within its greeting, and within its response.
    const CUT: [(&str, usize, usize); 9] = [
        ("greeting", 0, 3),
        ("root", 0, 20),
        ("postgresql", 1, 1),
        ("redis", 2, 3),
        ("smtp", 3, 2),
        ("esmtp", 3, 60),
        ("ldap", 4, 6),
        ("amqp", 5, 5),
        ("other_amqp", 5, 4),
    ];
    let (relays, cut) = broken(&servers, |_| Break::Cut, &CUT);
    compare(&cut);
    drop(relays);
    // The process stands still when its first bytes are there: the connection is, and no more comes.
    let (relays, stopped) = broken(
        &servers,
        // MariaDB and the SMTP server begin with a greeting.
        |at| Break::Stop { pid: servers[at].pid(), speaks_first: matches!(at, 0 | 3) },
        &[("root", 0, 1), ("esmtp", 3, 1), ("ldap", 4, 1), ("amqp", 5, 1)],
    );
    compare(&stopped);
    drop(relays);
    // It stands still from the beginning: the kernel still accepts for it.
    servers.iter().for_each(|server| server.signal(Signal::SIGSTOP));
    compare(&cases(ports));
    servers.iter().for_each(|server| server.signal(Signal::SIGCONT));
    drop(servers);
    compare(&cases(ports));
}
