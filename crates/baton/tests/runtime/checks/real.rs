//! Checks of real servers: MariaDB, PostgreSQL, Redis, an SMTP server and slapd, each while it runs and after it was stopped. All start at
//! once, on loopback ports, with their files in a folder of the test.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::unistd::{Uid, User};

use crate::support::{free_address, until};

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

/// A check of the server at a port.
fn check(name: &'static str, lines: &[&'static str], port: u16) -> Case {
    Case { port: Some(port), ..gone(name, lines) }
}

fn cases(ports: [u16; 5]) -> Vec<Case> {
    let [mariadb, postgresql, redis, smtp, slapd] = ports;
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
        // Another protocol than the server's.
        check("not_ldap", &["option ldap-check", "timeout check 300ms"], redis),
        check("not_smtp", &["option smtpchk", "timeout check 300ms"], redis),
    ]
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
        ];
        starting.into_iter().map(|server| server.join().expect("it has started")).collect()
    });
    let running: Vec<u16> = servers.iter().map(|server| server.port).collect();
    assert_eq!(running, ports);
    compare(&cases(ports));
    drop(servers);
    compare(&cases(ports));
}
