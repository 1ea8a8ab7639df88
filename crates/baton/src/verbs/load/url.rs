//! The URLs of a load: what they say, and the address behind them.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use baton_prove::Target;

/// How long one of several addresses of a name may take to answer before the next one is tried.
const TRY: Duration = Duration::from_secs(1);

/// What is spoken with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Requests.
    Http,
    /// Requests over TLS.
    Https,
    /// A WebSocket that is held open.
    Ws,
    /// A WebSocket over TLS that is held open.
    Wss,
    /// Plain bytes over a connection that is held open.
    Tcp,
}

impl Scheme {
    /// Whether it is held open, and not asked request by request.
    pub fn is_session(self) -> bool {
        matches!(self, Scheme::Ws | Scheme::Wss | Scheme::Tcp)
    }

    /// Whether it goes through TLS.
    pub fn is_secure(self) -> bool {
        matches!(self, Scheme::Https | Scheme::Wss)
    }

    fn port(self) -> Option<u16> {
        match self {
            Scheme::Http | Scheme::Ws => Some(80),
            Scheme::Https | Scheme::Wss => Some(443),
            Scheme::Tcp => None,
        }
    }
}

/// Where the server is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UrlTarget {
    Host { name: String, port: u16 },
    Unix(PathBuf),
}

/// A URL as it was given, not looked up yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// As written.
    pub text: String,
    /// What is spoken.
    pub scheme: Scheme,
    /// The path and the query; `/` when the URL has none.
    pub path: String,
    /// What goes into the `Host` header: the name, and the port if it is not the scheme's own.
    pub authority: String,
    place: UrlTarget,
}

impl Url {
    /// The name of the server, as SNI has it: without a port; `None` for an address or a unix socket, which have none.
    pub fn server_name(&self) -> Option<&str> {
        match &self.place {
            UrlTarget::Host { name, .. } if name.parse::<std::net::IpAddr>().is_err() => Some(name),
            _ => None,
        }
    }

    /// Whether the two may share connections.
    pub fn is_same_server(&self, other: &Url) -> bool {
        (self.scheme, &self.place, &self.authority) == (other.scheme, &other.place, &other.authority)
    }

    /// The server's address. Of a name with several, the first one that accepts a connection is taken, else the first one.
    ///
    /// # Errors
    /// A sentence, when the name has no address.
    pub fn look_up(&self) -> Result<Target, String> {
        let (name, port) = match &self.place {
            UrlTarget::Unix(path) => return Ok(Target::Unix(path.clone())),
            UrlTarget::Host { name, port } => (name.as_str(), *port),
        };
        let found =
            (name, port).to_socket_addrs().map_err(|error| format!("{}: cannot resolve the name: {error}", self.text));
        let addresses: Vec<SocketAddr> = found?.collect();
        let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, TRY).is_ok();
        let chosen = match addresses.len() {
            0 | 1 => addresses.first(),
            _ => addresses.iter().find(answers).or(addresses.first()),
        };
        chosen.map(|address| Target::Tcp(*address)).ok_or_else(|| format!("{}: the name has no address", self.text))
    }
}

impl FromStr for Url {
    type Err = String;

    /// Understands `SCHEME://HOST[:PORT][/PATH]` and `SCHEME://unix:/SOCKET[:/PATH]`; without a scheme it is `http`, as in `ab`.
    fn from_str(text: &str) -> Result<Url, String> {
        let is_word = |(scheme, _): &(&str, &str)| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let (scheme, rest) = text.split_once("://").filter(is_word).unwrap_or(("http", text));
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "ws" => Scheme::Ws,
            "wss" => Scheme::Wss,
            "tcp" => Scheme::Tcp,
            other => return Err(format!("unknown scheme '{other}://'; expected http, https, ws, wss or tcp")),
        };
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            // hey's `-q 10`: our -q takes no value.
            return Err(format!(
                "'{text}' is not a URL; for hey's -q N (requests per second and connection) use --rate, -q hides the progress"
            ));
        }
        // What follows a '#' never leaves a client.
        let rest = rest.split('#').next().unwrap_or_default();
        if let Some(bad) = rest.chars().find(|letter| letter.is_control() || *letter == ' ') {
            return Err(format!("{bad:?} is not allowed in a URL; write it as %{:02x}", u32::from(bad)));
        }
        let (place, authority, path) = match rest.strip_prefix("unix:") {
            Some(socket) => {
                let (socket, path) = socket.split_once(':').unwrap_or((socket, "/"));
                if !socket.starts_with('/') {
                    return Err("write a unix socket as http://unix:/run/app.sock:/path".into());
                }
                (UrlTarget::Unix(socket.into()), "localhost".to_owned(), path)
            }
            None => {
                let split = rest.find(['/', '?']).unwrap_or(rest.len());
                let (authority, path) = rest.split_at(split);
                (host(authority, scheme)?, authority.to_owned(), path)
            }
        };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        if scheme == Scheme::Tcp && path != "/" {
            return Err("tcp:// has no path".into());
        }
        let default = scheme.port().map(|port| format!(":{port}"));
        let authority = default.and_then(|port| authority.strip_suffix(&port)).unwrap_or(&authority).to_owned();
        Ok(Url { text: text.to_owned(), scheme, path, authority, place })
    }
}

fn host(authority: &str, scheme: Scheme) -> Result<UrlTarget, String> {
    if authority.contains('@') {
        return Err("use -A NAME:PASSWORD for basic authentication".into());
    }
    let (name, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (name, rest) = rest.split_once(']').ok_or("the ']' after an IPv6 address is missing")?;
            (name, rest.strip_prefix(':').or(rest.is_empty().then_some("")))
        }
        None => match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("an IPv6 address needs brackets, as in [::1]:80".into());
            }
            Some((name, port)) => (name, Some(port)),
            None => (authority, Some("")),
        },
    };
    let port = match port {
        Some("") => scheme.port().ok_or("tcp:// needs a port, as in tcp://localhost:5000")?,
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| format!("'{port}' is not a port"))?,
        None => return Err("expected ':' and a port after the ']'".into()),
    };
    if name.is_empty() {
        return Err("the host name is missing".into());
    }
    Ok(UrlTarget::Host { name: name.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, scheme: Scheme, place: &str, authority: &str, path: &str) {
        let url: Url = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let at = match &url.place {
            UrlTarget::Host { name, port } => format!("{name} {port}"),
            UrlTarget::Unix(path) => path.display().to_string(),
        };
        let seen = (url.scheme, at.as_str(), url.authority.as_str(), url.path.as_str());
        assert_eq!(seen, (scheme, place, authority, path), "{text}");
    }

    #[test]
    fn urls_say_what_where_and_which_path() {
        check("http://h", Scheme::Http, "h 80", "h", "/");
        check("h/a", Scheme::Http, "h 80", "h", "/a");
        check("localhost:8080/a?b=c#d", Scheme::Http, "localhost 8080", "localhost:8080", "/a?b=c");
        check("h/a?to=http://x/", Scheme::Http, "h 80", "h", "/a?to=http://x/");
        check("HTTPS://h:443/", Scheme::Https, "h 443", "h", "/");
        check("http://h:443?x", Scheme::Http, "h 443", "h:443", "/?x");
        check("ws://[::1]:9/chat", Scheme::Ws, "::1 9", "[::1]:9", "/chat");
        check("wss://[::1]/", Scheme::Wss, "::1 443", "[::1]", "/");
        check("tcp://10.0.0.1:5000", Scheme::Tcp, "10.0.0.1 5000", "10.0.0.1:5000", "/");
        check("http://unix:/run/a.sock:/x?y", Scheme::Http, "/run/a.sock", "localhost", "/x?y");
        check("tcp://unix:/run/a.sock", Scheme::Tcp, "/run/a.sock", "localhost", "/");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |text: &str, expect: &str| {
            let error = text.parse::<Url>().expect_err(text);
            assert!(error.contains(expect), "{text}: {error}");
        };
        wrong("ftp://h/", "http, https, ws, wss or tcp");
        wrong("http://", "host name is missing");
        wrong("http://:80/", "host name is missing");
        wrong("http://h:0/", "'0' is not a port");
        wrong("http://h:99999/", "'99999' is not a port");
        wrong("http://::1/", "brackets");
        wrong("http://[::1/", "']'");
        wrong("http://[::1]x/", "after the ']'");
        wrong("http://u:p@h/", "-A");
        wrong("http://h/a b", "%20");
        wrong("10", "--rate");
        wrong("tcp://h", "needs a port");
        wrong("tcp://h:1/a", "no path");
        wrong("http://unix:run", "unix:/run/app.sock:/path");
    }

    #[test]
    fn names_are_looked_up() {
        let target = |text: &str| text.parse::<Url>().expect("a URL").look_up();
        assert_eq!(target("http://[::1]:8080"), Ok(Target::Tcp("[::1]:8080".parse().expect("an address"))));
        assert_eq!(target("http://unix:/s:/"), Ok(Target::Unix("/s".into())));
        assert!(target("http://no-such-host.invalid/").is_err_and(|text| text.contains("cannot resolve")));
    }
}
