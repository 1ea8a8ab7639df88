//! What is kept: addresses as they are written, and the sockets opened for them.

use std::env;
use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::str::FromStr;

use baton_kernel::Endpoint;
use baton_kernel::listen::{self, ListenOptions, Listening};
use baton_kernel::passed;
use baton_kernel::process::activation::FIRST;
use socket2::{Domain, SockAddr, Socket, Type};

/// The most sockets that are kept: as many as one message can carry.
pub const SOCKETS_MAX: usize = 252;

/// Bytes in the name of a socket.
const NAME_MAX: usize = 64;

/// An address to listen on: `[NAME=]ADDRESS[,OPTION…]`.
///
/// `:80` and `*:80` are all IPv4 addresses, `[::]:80` all of IPv6, `/run/web.sock` a unix socket, `abns@web` an abstract one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The name it was given; `None`: the port, or the file's name.
    pub name: Option<String>,
    /// The address.
    pub endpoint: Endpoint,
    /// How to listen.
    pub options: ListenOptions,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let mut words = text.split(',');
        let place = words.next().unwrap_or_default();
        let (name, address) = match place.split_once('=') {
            Some((name, address)) if !name.contains('/') => (Some(checked(name)?), address),
            _ => (None, place),
        };
        let endpoint = endpoint(address)?;
        let is_six = endpoint.inet().is_some_and(|address| address.is_ipv6());
        // What connections inherit is the business of the program that accepts them.
        let mut options = ListenOptions { v6only: is_six.then_some(true), nodelay: false, ..ListenOptions::default() };
        for word in words {
            option(word, &endpoint, &mut options)?;
        }
        Ok(Listen { name, endpoint, options })
    }
}

/// A name that a variable can bear and that no list of names is confused by.
fn checked(name: &str) -> Result<String, String> {
    let is_good = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    match !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(is_good) {
        true => Ok(name.to_owned()),
        false => Err(format!("'{name}' is not a valid name: at most {NAME_MAX} letters, digits, '-', '_' and '.'")),
    }
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    if let Some(name) = text.strip_prefix("abns@") {
        return match name {
            // The kernel would choose one that nobody knows.
            "" => Err("'abns@' has no name: write such as abns@web".into()),
            name => Ok(Endpoint::Abstract(name.as_bytes().to_vec())),
        };
    }
    let path = text.strip_prefix("unix@").or_else(|| text.contains('/').then_some(text));
    if let Some(path) = path.filter(|path| !path.is_empty()) {
        return Ok(Endpoint::Unix(path.into()));
    }
    let wrong =
        || format!("'{text}' is not an address: write such as ':80', '127.0.0.1:80', '[::]:80', '/run/web.sock'");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong());
    let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match (host, inside) {
        ("" | "*", None) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        // HAProxy's way to write all addresses of IPv6, which can mean nothing else.
        ("::", None) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        (_, Some(six)) => IpAddr::V6(six.parse().map_err(|_| wrong())?),
        (six, None) if six.contains(':') => {
            return Err(format!("'{text}': an IPv6 address needs brackets, as in [2001:db8::1]:80"));
        }
        (four, None) => IpAddr::V4(four.parse().map_err(|_| wrong())?),
    };
    Ok(Endpoint::Inet(SocketAddr::new(host, port?)))
}

fn option(word: &str, endpoint: &Endpoint, options: &mut ListenOptions) -> Result<(), String> {
    let is_six = endpoint.inet().is_some_and(|address| address.is_ipv6());
    let is_file = matches!(endpoint, Endpoint::Unix(_));
    let of_six = || is_six.then_some(()).ok_or_else(|| format!("'{word}' is for IPv6 addresses"));
    match word.split_once('=').unwrap_or((word, "")) {
        ("v6only", "") => of_six().map(|()| options.v6only = Some(true)),
        ("v4v6", "") => of_six().map(|()| options.v6only = Some(false)),
        ("backlog", count) => {
            options.backlog = count.parse().ok().filter(|&count| count > 0).ok_or("backlog=NUMBER, 1 or more")?;
            Ok(())
        }
        ("interface", name) if !name.is_empty() && endpoint.inet().is_some() => {
            options.interface = Some(name.to_owned());
            Ok(())
        }
        ("transparent", "") if endpoint.inet().is_some() => {
            options.transparent = true;
            Ok(())
        }
        ("mode", mode) if is_file => {
            let mode = u32::from_str_radix(mode, 8).ok().filter(|&mode| mode <= 0o777);
            options.mode = Some(mode.ok_or("mode=0660, in octal digits")?);
            Ok(())
        }
        _ => Err(format!(
            "'{word}' is not an option of this address; options are backlog=N, interface=NAME, transparent, v6only and v4v6 \
             for IPv6, mode=0660 for paths"
        )),
    }
}

impl Listen {
    /// Whether both cannot be had. The kernel chooses another port for each `:0`.
    fn is_same_place(&self, other: &Listen) -> bool {
        let is_chosen = self.endpoint.inet().is_some_and(|address| address.port() == 0);
        self.endpoint == other.endpoint && self.options.interface == other.options.interface && !is_chosen
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.endpoint)
    }
}

/// A socket that is kept.
#[derive(Debug)]
pub struct KeptSocket {
    /// Its name, of which there is one.
    pub name: String,
    /// The socket.
    pub listening: Listening,
    /// Whether its file is ours to remove at the end.
    pub is_ours: bool,
}

impl AsFd for KeptSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listening.as_fd()
    }
}

/// Opens a socket that nobody else serves: the path of a unix socket could be taken away from whoever listens there.
///
/// # Errors
/// A sentence that names the address, the reason and what to do.
pub(super) fn open_new(endpoint: &Endpoint, options: &ListenOptions) -> Result<Listening, String> {
    if let Endpoint::Unix(path) = endpoint
        && is_served(path)
    {
        return Err(format!("{}: another process listens there; stop it, or use another path", path.display()));
    }
    listen::open(endpoint, options).map_err(|error| error.to_string())
}

fn is_served(path: &Path) -> bool {
    let dialled = Socket::new(Domain::UNIX, Type::STREAM, None).and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)
    });
    // A full queue is somebody's too.
    dialled.map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |()| true)
}

/// Opens all addresses, or none. What a service manager passed (`LISTEN_FDS`) is used where it has an address, and kept too where
/// nobody named it. To be called once, before anything else is opened.
///
/// # Errors
/// A sentence that names the address, the reason and what to do.
pub fn open(wanted: &[Listen]) -> Result<Vec<KeptSocket>, String> {
    let mut given = passed()?;
    let mut kept = Vec::with_capacity(wanted.len());
    for (number, listen) in wanted.iter().enumerate() {
        let at = given.iter().position(|(_, given)| *given.local() == listen.endpoint);
        let (listening, is_ours) = match at {
            Some(at) => (given.remove(at).1, false),
            None if wanted[..number].iter().any(|other| other.is_same_place(listen)) => {
                return Err(format!("--listen {listen} is given twice: remove one"));
            }
            None => (open_new(&listen.endpoint, &listen.options)?, true),
        };
        let name = listen.name.clone().unwrap_or_else(|| name_of(listening.local()));
        kept.push(KeptSocket { name, listening, is_ours });
    }
    for (name, listening) in given {
        let name = checked(&name).unwrap_or_else(|_| name_of(listening.local()));
        kept.push(KeptSocket { name, listening, is_ours: false });
    }
    if kept.is_empty() {
        return Err("nothing to keep: give --listen ADDRESS, or start it by socket activation".into());
    }
    if kept.len() > SOCKETS_MAX {
        return Err(format!("{} sockets; the maximum is {SOCKETS_MAX}", kept.len()));
    }
    distinct(&mut kept);
    Ok(kept)
}

/// What a service manager passed to this process, with its names.
fn passed() -> Result<Vec<(String, Listening)>, String> {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let (Some(pid), Some(count)) = (number("LISTEN_PID"), number("LISTEN_FDS")) else { return Ok(Vec::new()) };
    if pid != std::process::id() {
        return Ok(Vec::new());
    }
    if count as usize > SOCKETS_MAX {
        return Err(format!("LISTEN_FDS is {count}; the maximum is {SOCKETS_MAX}"));
    }
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut passed = Vec::new();
    for number in (FIRST..).take(count as usize) {
        let name = names.next().unwrap_or_default().to_owned();
        let unusable = |reason: String| format!("descriptor {number} ({name}) of the service manager: {reason}");
        let fd = passed::duplicate(number).map_err(|error| unusable(error.to_string()))?;
        let listening = Listening::adopt(fd).map_err(|error| unusable(error.to_string()))?;
        passed.push((name, listening));
    }
    Ok(passed)
}

/// The port, or the name of a file.
fn name_of(local: &Endpoint) -> String {
    match local {
        Endpoint::Inet(address) => address.port().to_string(),
        Endpoint::Unix(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        Endpoint::Abstract(name) => String::from_utf8_lossy(name).into_owned(),
        Endpoint::Fd(number) => number.to_string(),
    }
    .replace(|letter: char| !letter.is_ascii_alphanumeric() && !"-_.".contains(letter), "_")
}

/// Gives the second and later ones of a name a number after it.
fn distinct(kept: &mut [KeptSocket]) {
    for at in 0..kept.len() {
        let base = kept[at].name.clone();
        let is_taken = |name: &str| kept[..at].iter().any(|other| variable(&other.name) == variable(name));
        let free =
            (1..).map(|n| if n == 1 { base.clone() } else { format!("{base}_{n}") }).find(|name| !is_taken(name));
        kept[at].name = free.expect("there are more numbers than sockets");
    }
}

/// The environment's name for the number of a socket: `BATON_FD_80`, `BATON_FD_WEB_SOCK`.
pub fn variable(name: &str) -> String {
    let letters =
        name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' });
    "BATON_FD_".chars().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &str, name: Option<&str>) -> ListenOptions {
        let listen: Listen = text.parse().unwrap();
        assert_eq!((listen.to_string().as_str(), listen.name.as_deref()), (shown, name), "{text}");
        listen.options
    }

    #[test]
    fn addresses_are_read() {
        check(":80", "0.0.0.0:80", None);
        check("*:80", "0.0.0.0:80", None);
        check("127.0.0.1:0", "127.0.0.1:0", None);
        check("web=10.0.0.1:8080", "10.0.0.1:8080", Some("web"));
        assert_eq!(check("[::]:80", "[::]:80", None).v6only, Some(true));
        assert_eq!(check(":::80,v4v6", "[::]:80", None).v6only, Some(false));
        assert_eq!(check("[::1]:80,backlog=9", "[::1]:80", None).backlog, 9);
        assert_eq!(check("/run/x=y.sock,mode=0660", "/run/x=y.sock", None).mode, Some(0o660));
        check("unix@web.sock", "web.sock", None);
        check("a=abns@web", "abns@web", Some("a"));
    }

    #[test]
    fn what_is_none_is_refused() {
        for (text, words) in [
            ("80", "is not an address"),
            ("host:80", "is not an address"),
            (":99999", "is not an address"),
            ("", "is not an address"),
            ("a b=:80", "is not a valid name"),
            ("=:80", "is not a valid name"),
            (":80,v4v6", "for IPv6"),
            (":80,mode=0600", "not an option"),
            (":80,backlog=0", "1 or more"),
            ("/x,mode=9", "octal"),
            (":80,", "not an option"),
            ("::1:80", "needs brackets"),
            ("2001:db8::a", "needs brackets"),
            ("web=::1:80,v6only", "needs brackets"),
            ("[127.0.0.1]:80", "is not an address"),
            ("abns@", "has no name"),
            ("a=abns@", "has no name"),
        ] {
            let error = text.parse::<Listen>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn names_are_distinct_also_as_variables() {
        let wanted: Vec<Listen> = ["a.b=127.0.0.1:0", "a_b=127.0.0.1:0", "a.b=[::1]:0", "127.0.0.1:0"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let kept = open(&wanted).unwrap();
        let names: Vec<&str> = kept.iter().map(|kept| kept.name.as_str()).collect();
        let port = kept[3].listening.local().inet().unwrap().port().to_string();
        assert_eq!(names, ["a.b", "a_b_2", "a.b_3", port.as_str()]);
        assert_eq!(variable("a.b_3"), "BATON_FD_A_B_3");
    }

    #[test]
    fn all_are_opened_or_none() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let wanted = [format!("{}", taken.local_addr().unwrap()).parse().unwrap()];
        let error = open(&wanted).unwrap_err();
        assert!(error.contains("already in use") && error.contains("ss -ltnp"), "{error}");
        assert!(open(&[]).unwrap_err().contains("--listen"));
    }
}
