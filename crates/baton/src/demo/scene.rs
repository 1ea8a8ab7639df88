//! What the demo's proxy is to be at one moment, as data, and its `haproxy.cfg`. Pure: no file is written here.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The addresses a scene is played at; they stay the same for the whole demo.
#[derive(Clone, Debug)]
pub struct DemoAddresses {
    /// Frontend `web`.
    pub web: SocketAddr,
    /// `listen tunnel`.
    pub tunnel: SocketAddr,
    /// The second address that `web` has for a while.
    pub second_bind: SocketAddr,
    /// Frontend `extra`, which is there for a while.
    pub extra: SocketAddr,
    /// Frontend `secure`.
    pub secure: SocketAddr,
    /// The directory of its certificates.
    pub certificates: PathBuf,
    /// The two HTTP origins.
    pub origins: [SocketAddr; 2],
    /// The TCP origin that echoes.
    pub echo: SocketAddr,
    /// An address that the demo itself listens on, so that nobody else can.
    pub taken: SocketAddr,
    /// A file that does not exist.
    pub missing: PathBuf,
}

/// A `server` line of backend `app`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Server {
    /// Its name.
    pub name: &'static str,
    /// Which of the two origins it is.
    pub origin: usize,
    /// Its weight.
    pub weight: u16,
}

/// A fault that must make the proxy refuse the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConfigMistake {
    /// A word that is none.
    UnknownKeyword,
    /// An address that somebody else listens on.
    TakenPort,
    /// A file of patterns that is not there.
    MissingFile,
}

/// The proxy at one moment. `None` and `false` mean that the line is not in the file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DemoState {
    /// Servers of backend `app`.
    pub servers: Vec<Server>,
    /// `balance` of backend `app`.
    pub balance: &'static str,
    /// `timeout server` of backend `app`, in seconds.
    pub timeout_server_s: u32,
    /// `timeout client` of frontend `web`, in seconds.
    pub timeout_client_s: u32,
    /// `maxconn` of frontend `web`.
    pub maxconn: u32,
    /// Whether `web` has its second address.
    pub second_bind: bool,
    /// Whether frontend `extra` is there.
    pub extra: bool,
    /// The value `web` gives requests in the header `X-Demo`.
    pub header: Option<&'static str>,
    /// Whether `web` sends paths below `/only-two` to a backend of their own.
    pub only_two: bool,
    /// What is wrong with the file.
    pub fault: Option<ConfigMistake>,
}

impl Default for DemoState {
    /// How the demo begins, and how each round of its changes ends.
    fn default() -> DemoState {
        let server = |name, origin| Server { name, origin, weight: 10 };
        DemoState {
            servers: vec![server("one", 0), server("two", 1)],
            balance: "roundrobin",
            timeout_server_s: 30,
            timeout_client_s: 30,
            maxconn: 1000,
            second_bind: false,
            extra: false,
            header: None,
            only_two: false,
            fault: None,
        }
    }
}

impl DemoState {
    /// Adds a server, at the end.
    pub fn add_server(&mut self, name: &'static str, origin: usize, weight: u16) {
        self.servers.push(Server { name, origin, weight });
    }

    /// Removes a server, if it is there.
    pub fn remove_server(&mut self, name: &str) {
        self.servers.retain(|server| server.name != name);
    }

    /// Gives a server another weight, if it is there.
    pub fn weigh(&mut self, name: &str, weight: u16) {
        self.servers.iter_mut().filter(|server| server.name == name).for_each(|server| server.weight = weight);
    }

    /// The scene as `haproxy.cfg`.
    pub fn to_cfg(&self, places: &DemoAddresses) -> String {
        let mut out = String::from(DEFAULTS);
        self.web(places, &mut out);
        let secure = format!("bind {} ssl crt {} watch", places.secure, places.certificates.display());
        section(&mut out, "frontend secure", &[secure, "default_backend app".into()]);
        if self.extra {
            section(&mut out, "frontend extra", &[format!("bind {}", places.extra), "default_backend app".into()]);
        }
        let echo = format!("server echo {}", places.echo);
        section(&mut out, "listen tunnel", &["mode tcp".into(), format!("bind {}", places.tunnel), echo]);
        self.app(places, &mut out);
        if self.only_two {
            section(&mut out, "backend only-two", &[format!("server two {}", places.origins[1])]);
        }
        out
    }

    fn web(&self, places: &DemoAddresses, out: &mut String) {
        let mut lines = vec![format!("bind {}", places.web)];
        if self.second_bind {
            lines.push(format!("bind {}", places.second_bind));
        }
        if self.fault == Some(ConfigMistake::TakenPort) {
            lines.push(format!("bind {}", places.taken));
        }
        lines.push(format!("maxconn {}", self.maxconn));
        lines.push(format!("timeout client {}s", self.timeout_client_s));
        if self.fault == Some(ConfigMistake::MissingFile) {
            lines.push(format!("http-request deny if {{ src -f {} }}", places.missing.display()));
        }
        lines.extend(self.header.map(|value| format!("http-request set-header X-Demo {value}")));
        if self.only_two {
            lines.push("acl for-two path_beg /only-two".into());
            lines.push("use_backend only-two if for-two".into());
        }
        lines.push("default_backend app".into());
        section(out, "frontend web", &lines);
    }

    fn app(&self, places: &DemoAddresses, out: &mut String) {
        let mut lines = vec![
            match self.fault {
                Some(ConfigMistake::UnknownKeyword) => format!("balanse {}", self.balance),
                Some(ConfigMistake::TakenPort | ConfigMistake::MissingFile) | None => {
                    format!("balance {}", self.balance)
                }
            },
            format!("timeout server {}s", self.timeout_server_s),
        ];
        let line = |server: &Server| {
            let address = places.origins[server.origin];
            format!("server {} {address} check weight {}", server.name, server.weight)
        };
        lines.extend(self.servers.iter().map(line));
        section(out, "backend app", &lines);
    }
}

const DEFAULTS: &str = "\
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    timeout tunnel 1h
";

fn section(out: &mut String, head: &str, lines: &[String]) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "\n{head}");
    for line in lines {
        let _ = writeln!(out, "    {line}");
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Addresses that nobody has to have.
    pub fn places() -> DemoAddresses {
        let at = |port| SocketAddr::from(([127, 0, 0, 2], port));
        DemoAddresses {
            web: at(80),
            tunnel: at(81),
            second_bind: at(82),
            extra: at(83),
            secure: at(84),
            certificates: std::env::temp_dir(),
            origins: [at(91), at(92)],
            echo: at(93),
            taken: at(94),
            missing: "/no/such.list".into(),
        }
    }

    /// The lines that a change adds to the first scene's file and takes from it.
    #[track_caller]
    fn check(change: fn(&mut DemoState), added: &[&str], removed: &[&str]) {
        let mut scene = DemoState::default();
        let before = scene.to_cfg(&places());
        change(&mut scene);
        let after = scene.to_cfg(&places());
        let only = |one: &str, other: &str| -> Vec<String> {
            let other: Vec<&str> = other.lines().collect();
            one.lines().filter(|line| !other.contains(line)).map(|line| line.trim().to_owned()).collect()
        };
        assert_eq!(only(&after, &before), added);
        assert_eq!(only(&before, &after), removed);
    }

    #[test]
    fn the_first_scene_is_short() {
        let expect = "
frontend web
    bind 127.0.0.2:80
    maxconn 1000
    timeout client 30s
    default_backend app

frontend secure
    bind 127.0.0.2:84 ssl crt CERTIFICATES watch
    default_backend app

listen tunnel
    mode tcp
    bind 127.0.0.2:81
    server echo 127.0.0.2:93

backend app
    balance roundrobin
    timeout server 30s
    server one 127.0.0.2:91 check weight 10
    server two 127.0.0.2:92 check weight 10
";
        let certificates = places().certificates.display().to_string();
        let expect = expect.replace("CERTIFICATES", &certificates);
        assert_eq!(DemoState::default().to_cfg(&places()), format!("{DEFAULTS}{expect}"));
    }

    #[test]
    fn servers_come_go_and_are_weighed() {
        check(|scene| scene.add_server("three", 0, 5), &["server three 127.0.0.2:91 check weight 5"], &[]);
        check(|scene| scene.remove_server("one"), &[], &["server one 127.0.0.2:91 check weight 10"]);
        check(
            |scene| scene.weigh("two", 30),
            &["server two 127.0.0.2:92 check weight 30"],
            &["server two 127.0.0.2:92 check weight 10"],
        );
        check(|scene| scene.weigh("nobody", 30), &[], &[]);
    }

    #[test]
    fn settings_are_lines() {
        check(|scene| scene.balance = "leastconn", &["balance leastconn"], &["balance roundrobin"]);
        check(|scene| scene.timeout_server_s = 9, &["timeout server 9s"], &[]);
        check(|scene| scene.maxconn = 7, &["maxconn 7"], &["maxconn 1000"]);
        check(|scene| scene.second_bind = true, &["bind 127.0.0.2:82"], &[]);
        check(|scene| scene.header = Some("a"), &["http-request set-header X-Demo a"], &[]);
        check(|scene| scene.extra = true, &["frontend extra", "bind 127.0.0.2:83"], &[]);
    }

    #[test]
    fn faults_are_lines() {
        check(
            |scene| scene.fault = Some(ConfigMistake::UnknownKeyword),
            &["balanse roundrobin"],
            &["balance roundrobin"],
        );
        check(|scene| scene.fault = Some(ConfigMistake::TakenPort), &["bind 127.0.0.2:94"], &[]);
        let missing = "http-request deny if { src -f /no/such.list }";
        check(|scene| scene.fault = Some(ConfigMistake::MissingFile), &[missing], &[]);
    }
}
