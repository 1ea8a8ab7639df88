//! By a BPF program that chooses the listening socket of a new connection: no address is translated, nothing is tracked, and the
//! client sees the address it dialled. A flip changes one number in a map of the kernel's.
//!
//! The sockets are those in which the instances listen at this moment, taken from their processes. The kernel removes one that is closed;
//! then new connections of its colour find a listening socket as if nobody had chosen, which is to say that they are refused. So
//! a server whose restart opens other sockets is put in again: a switch to it does so, and so does setting up again.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use baton_kernel::borrow::{self, Borrowed};
use baton_kernel::bpf::{BpfError, Choice, FILE_SYSTEM, Slot};
use baton_kernel::listeners::{self, Listener};

use super::method::{FlipMethod, FlipMethodKind, Observed, PlanStep};
use super::{Colour, Name, Setting};
use crate::KernelError;
use crate::hold::target::Target;

/// Where the folders of all names are.
const FOLDER: &str = "baton";
/// What a folder's name begins with; the name follows, and the number of the network namespace.
const PREFIX: &str = "flip-";

/// The method `sk_lookup`.
#[derive(Clone, Copy, Debug)]
pub struct SkLookup;

fn folder() -> PathBuf {
    Path::new(FILE_SYSTEM).join(FOLDER)
}

/// The number of the calling thread's network namespace: the file system is one for all of them.
fn namespace() -> Result<u64, KernelError> {
    let file = File::open("/proc/thread-self/ns/net").and_then(|file| file.metadata());
    file.map(|found| found.ino()).map_err(|error| KernelError::io("the network namespace", &error))
}

fn path(name: &Name) -> Result<PathBuf, KernelError> {
    Ok(folder().join(format!("{PREFIX}{name}-{}", namespace()?)))
}

fn choice(name: &Name) -> Result<Choice, KernelError> {
    Ok(Choice::at(&path(name)?))
}

fn fault(refused: BpfError) -> KernelError {
    let (reason, remedy) = refused.parts();
    KernelError::new("sk_lookup", reason, remedy)
}

fn slot(colour: Colour, v4: bool) -> Slot {
    Slot { colour: number(colour), is_six: !v4 }
}

fn number(colour: Colour) -> u32 {
    match colour {
        Colour::Blue => 0,
        Colour::Green => 1,
    }
}

/// The addresses that clients dial, of every family that is served.
fn places(setting: &Setting) -> Vec<SocketAddr> {
    let any = |v4| if v4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let place = |v4| SocketAddr::new(setting.listen.address.unwrap_or_else(|| any(v4)), setting.listen.port);
    setting.served().into_iter().map(place).collect()
}

/// The listening sockets that take connections of this family at a place, the likeliest first: at this very address before at all
/// addresses, those of IPv4 alone before those of both families, the youngest before others.
fn candidates(place: &Target, v4: bool) -> Result<Vec<Listener>, KernelError> {
    let what = || format!("the listening sockets of {place}");
    let mut found = listeners::listening(place.port).map_err(|error| KernelError::netlink(what(), &error))?;
    found.retain(|listener| {
        let local = listener.local;
        let is_family = local.is_ipv4() == v4 || (v4 && local.ip().is_unspecified());
        is_family && place.is_served_by(local)
    });
    found.sort_by_key(|listener| {
        let ip = listener.local.ip();
        let is_exact = place.address.map_or(ip.is_unspecified(), |address| address == ip);
        (!is_exact, ip.is_ipv4() != v4, std::cmp::Reverse(listener.inode))
    });
    Ok(found)
}

/// The socket in which an instance takes connections of a family, and its process.
fn socket(setting: &Setting, colour: Colour, v4: bool) -> Result<Borrowed, KernelError> {
    let place =
        setting.place_for(colour, v4).ok_or_else(|| KernelError::new(colour.word(), "it has no such address", ""))?;
    let mut reason = "nothing listens there".to_owned();
    for listener in candidates(&place, v4)? {
        match borrow::socket(listener.inode) {
            Ok(borrowed) => return Ok(borrowed),
            Err(error) => reason = format!("cannot get its listening socket: {error}"),
        }
    }
    let remedy = match reason.contains("denied") {
        true => "run it as root, or grant CAP_SYS_PTRACE",
        false => "start it first",
    };
    Err(KernelError::new(format!("{colour} ({place})"), reason, remedy))
}

/// Puts the sockets that an instance has now into their places.
fn put(choice: &Choice, setting: &Setting, colour: Colour) -> Result<(), KernelError> {
    let sockets: Vec<(bool, Borrowed)> = setting
        .served()
        .into_iter()
        .map(|v4| Ok((v4, socket(setting, colour, v4)?)))
        .collect::<Result<_, KernelError>>()?;
    sockets.iter().try_for_each(|(v4, socket)| choice.put(slot(colour, *v4), socket.fd.as_fd()).map_err(fault))
}

impl FlipMethod for SkLookup {
    fn kind(&self) -> FlipMethodKind {
        FlipMethodKind::SkLookup
    }

    fn check(&self, setting: &Setting) -> Result<(), KernelError> {
        choice(&setting.name)?.check().map_err(fault)
    }

    fn observe(&self, setting: &Setting) -> Result<Observed, KernelError> {
        let choice = choice(&setting.name)?;
        if !choice.exists().map_err(fault)? {
            return Ok(Observed::Absent);
        }
        let (active, mut there) = match (choice.active(), choice.places()) {
            (Ok(Some(active)), Ok(there)) => (active, there),
            (Ok(None), _) => return Ok(Observed::Absent),
            (Err(refused), _) | (_, Err(refused)) if refused.is_no_right() => return Err(fault(refused)),
            (Err(refused), _) | (_, Err(refused)) => return Ok(Observed::Broken(refused.to_string())),
        };
        let mut wanted = places(setting);
        there.sort_unstable();
        wanted.sort_unstable();
        if there != wanted {
            return Ok(Observed::Broken("it is for other addresses".into()));
        }
        let colour = if active == 0 { Colour::Blue } else { Colour::Green };
        for v4 in setting.served() {
            let Some(place) = setting.place_for(colour, v4) else { continue };
            let put_in = choice.cookie(slot(colour, v4)).map_err(fault)?;
            let is_there = candidates(&place, v4)?.iter().any(|listener| Some(listener.cookie) == put_in);
            if !is_there {
                let text = format!("the socket of {colour} ({place}) is closed, and new connections are refused");
                return Ok(Observed::Broken(text));
            }
        }
        Ok(Observed::Active(colour))
    }

    fn install(&self, setting: &Setting, active: Colour, _: bool) -> Result<(), KernelError> {
        let choice = choice(&setting.name)?;
        let mut sockets = Vec::new();
        for v4 in setting.served() {
            sockets.push((slot(active, v4), socket(setting, active, v4)?));
            // The other one may not run yet: a switch puts it in.
            if let Ok(other) = socket(setting, active.other(), v4) {
                sockets.push((slot(active.other(), v4), other));
            }
        }
        let sockets: Vec<_> = sockets.iter().map(|(slot, socket)| (*slot, socket.fd.as_fd())).collect();
        choice.install(&places(setting), &sockets, number(active)).map_err(fault)
    }

    fn switch(&self, setting: &Setting, to: Colour) -> Result<(), KernelError> {
        let choice = choice(&setting.name)?;
        put(&choice, setting, to)?;
        choice.activate(number(to)).map_err(fault)
    }

    fn remove(&self, name: &Name) -> Result<(), KernelError> {
        choice(name)?.remove().map_err(fault)?;
        // Of the last one; with others in it, it stays.
        let _ = fs::remove_dir(folder());
        Ok(())
    }

    fn names(&self) -> Result<Vec<Name>, KernelError> {
        let ours = format!("-{}", namespace()?);
        let entries = fs::read_dir(folder()).into_iter().flatten().flatten();
        let name =
            |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix(PREFIX)?.strip_suffix(&ours)?.parse().ok();
        Ok(entries.filter_map(name).collect())
    }

    fn taken(&self, setting: &Setting, colour: Colour) -> Option<u64> {
        let choice = choice(&setting.name).ok()?;
        // Of the families that are not served, nobody came.
        [true, false].into_iter().map(|v4| choice.count(slot(colour, v4)).ok()).sum()
    }

    fn plan(&self, setting: &Setting, step: PlanStep) -> Result<Vec<String>, KernelError> {
        let folder = path(&setting.name)?;
        let listen = places(setting).iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" and ");
        let put = |colour: Colour| {
            format!(
                "# put the listening socket of {colour} ({}) into the map of sockets",
                super::nft::places(setting.instance(colour))
            )
        };
        // There is no program for it, so that all of this is a comment.
        Ok(match step {
            PlanStep::Install { active, .. } => vec![
                format!("# a BPF program chooses the listening socket for {listen}, pinned in {}", folder.display()),
                put(active),
                format!("{}, if it exists", put(active.other())),
                format!("# {active} is the active colour"),
                "# the program is tied to this network namespace".into(),
            ],
            PlanStep::Switch(to) => vec![put(to), format!("# {to} is the active colour")],
            PlanStep::Guard | PlanStep::Unguard => Vec::new(),
        })
    }

    fn plan_removal(&self, name: &Name) -> Result<Vec<String>, KernelError> {
        // The kernel unties a program whose link is gone.
        Ok(vec![format!("rm -r {}", path(name)?.display())])
    }
}

#[cfg(test)]
mod tests;
