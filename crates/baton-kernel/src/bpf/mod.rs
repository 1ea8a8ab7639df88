//! Choosing the listening socket of a new connection: the BPF program `choose.c`, its maps, and where they outlive us.
//!
//! Under one name there are a program, a link that ties it to a network namespace, and five maps, all pinned in a folder of a
//! BPF file system: the addresses that are meant, the sockets of two colours and their cookies, how many connections each got,
//! and which colour is active. A flip changes one number in the last one. Removing the folder ends everything; connections that
//! are there stay where they are.
//!
//! A pinned link outlives its network namespace, and then ties nothing to nothing; the kernel may give the number of that
//! namespace to another one later. So a link is asked which namespace it has.
//!
//! The kernel removes a socket that is closed from the map; while its colour is active, the kernel looks for a listening socket
//! as if the program were not there.

pub mod direct;
mod folder;
mod syscall;

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, SockMap};
use aya::programs::SkLookup;
use aya::programs::links::{FdLink, PinnedLink};
use nix::sys::statfs::{FsType, statfs};
use socket2::SockRef;

use crate::KernelError;
use folder::Folder;

/// The compiled program.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/choose.o"));

/// Where BPF file systems are mounted.
pub const FILE_SYSTEM: &str = "/sys/fs/bpf";

/// The most addresses under one name; as in `choose.c`.
pub const PLACES_MAX: usize = 64;

/// `BPF_FS_MAGIC` (linux/magic.h).
const MAGIC: FsType = FsType(0xcafe_4a11_u32 as _);

/// How one is mounted: so that nobody but root makes folders there.
const MOUNT: &str = "mount one: mount -t bpf -o mode=700 bpf /sys/fs/bpf";

/// The files of a name.
const LINK: &str = "link";
const PLACES: &str = "places";
const SOCKETS: &str = "sockets";
const ACTIVE: &str = "active";
const COOKIES: &str = "cookies";
const COUNTS: &str = "counts";
/// All of them, the link first: with it everything ends.
const FILES: [&str; 6] = [LINK, PLACES, SOCKETS, COOKIES, COUNTS, ACTIVE];

/// What is said of their folder.
const FOLDER: &str = "the folder of the BPF objects";

/// What the kernel tells of this process's descriptors, and of its network namespace.
const DESCRIPTORS: &str = "/proc/thread-self/fdinfo";
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// A key of the map of addresses: `struct place`.
type AddressKey = [u32; 6];

/// What is there under one name.
#[derive(Clone, Debug)]
pub struct Choice {
    folder: PathBuf,
}

/// A place for a socket: which of the two colours, and for connections of which family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// 0 or 1.
    pub colour: u32,
    /// For IPv6; a socket of IPv6 that takes IPv4 too has both places.
    pub is_six: bool,
}

impl Slot {
    fn index(self) -> u32 {
        (self.colour & 1) * 2 + u32::from(self.is_six)
    }
}

/// What the kernel refused.
#[derive(Debug)]
pub struct BpfError {
    /// What was tried.
    doing: &'static str,
    /// Its words, and those of the library.
    said: String,
    /// What helps.
    remedy: String,
    is_no_right: bool,
}

impl BpfError {
    /// What was tried and what was said; and what helps, which may be nothing.
    pub fn parts(&self) -> (String, &str) {
        (format!("{}: {}", self.doing, self.said), &self.remedy)
    }

    /// Whether a right was missing.
    pub fn is_no_right(&self) -> bool {
        self.is_no_right
    }
}

impl fmt::Display for BpfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.doing, self.said)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for BpfError {}

fn refused<E: std::error::Error>(doing: &'static str) -> impl FnOnce(E) -> BpfError {
    move |error| {
        let mut said = error.to_string();
        let mut source = error.source();
        let mut is_no_right = said.contains("os error 1)") || said.contains("os error 13)");
        while let Some(deeper) = source {
            if !said.contains(&deeper.to_string()) {
                said.push_str(&format!(": {deeper}"));
            }
            is_no_right |=
                deeper.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
            source = deeper.source();
        }
        let remedy = if is_no_right { "start as root, or with CAP_BPF and CAP_NET_ADMIN" } else { "" };
        BpfError { doing, said, remedy: remedy.to_owned(), is_no_right }
    }
}

/// What is against a folder.
fn out_of_reach(fault: KernelError) -> BpfError {
    let is_no_right = fault.remedy == crate::netlink::NO_RIGHT;
    BpfError { doing: FOLDER, said: format!("{}: {}", fault.place, fault.reason), remedy: fault.remedy, is_no_right }
}

/// Whether programs can be pinned in this folder, which need not be there.
fn mounted(folder: &Path) -> Result<(), BpfError> {
    // The last two steps are ours to make, and to judge.
    let there = folder.ancestors().skip(2).find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    match statfs(there) {
        Ok(found) if found.filesystem_type() == MAGIC => Ok(()),
        Ok(_) => Err(BpfError {
            doing: "BPF",
            said: format!("{} is not in a BPF file system", folder.display()),
            remedy: MOUNT.to_owned(),
            is_no_right: false,
        }),
        Err(error) => Err(refused("BPF")(io::Error::from(error))),
    }
}

impl Choice {
    /// Of the folder in which it is pinned; whether anything is there is another question.
    pub fn at(folder: &Path) -> Choice {
        Choice { folder: folder.to_owned() }
    }

    /// Whether programs can be pinned here at all.
    ///
    /// # Errors
    /// That no BPF file system is mounted, and what to do.
    pub fn check(&self) -> Result<(), BpfError> {
        mounted(&self.folder)
    }

    /// Whether anything is there, whole or not.
    ///
    /// # Errors
    /// When that may not be looked at.
    pub fn exists(&self) -> Result<bool, BpfError> {
        self.found().map(|folder| folder.is_some())
    }

    /// The folder, if it is there.
    fn found(&self) -> Result<Option<Folder>, BpfError> {
        Folder::find(&self.folder).map_err(out_of_reach)
    }

    /// Sets everything up in the network namespace of this thread: connections to `places` go to the sockets of the colour
    /// `active`. What is whole of an earlier time is changed in place, so that no connection passes beside it; what is broken is
    /// made anew.
    ///
    /// # Errors
    /// What was refused. What was not there before is not there afterwards.
    pub fn install(
        &self,
        places: &[SocketAddr],
        sockets: &[(Slot, BorrowedFd<'_>)],
        active: u32,
    ) -> Result<(), BpfError> {
        self.check()?;
        if places.len() > PLACES_MAX {
            let said = format!("{} addresses; the maximum is {PLACES_MAX}", places.len());
            return Err(BpfError {
                doing: "the addresses",
                said,
                remedy: "use several names".into(),
                is_no_right: false,
            });
        }
        if self.active().is_ok_and(|active| active.is_some()) {
            return self.fill(places, sockets, active);
        }
        self.remove()?;
        let made = self.make(places, sockets, active);
        if made.is_err() {
            let _ = self.remove();
        }
        made
    }

    fn make(&self, places: &[SocketAddr], sockets: &[(Slot, BorrowedFd<'_>)], active: u32) -> Result<(), BpfError> {
        let folder = Folder::make(&self.folder).map_err(out_of_reach)?;
        let mut object = Ebpf::load(OBJECT).map_err(refused("loading the BPF program"))?;
        for name in FILES.into_iter().filter(|name| *name != LINK) {
            let map = object.map_mut(name).expect("it is in choose.c");
            map.pin(folder.way(name)).map_err(refused("pinning a BPF map"))?;
        }
        self.fill(places, sockets, active)?;
        let program: &mut SkLookup = object
            .program_mut("choose")
            .expect("it is in choose.c")
            .try_into()
            .map_err(refused("the type of the BPF program"))?;
        program.load().map_err(refused("loading the BPF program"))?;
        let namespace = fs::File::open(NAMESPACE).map_err(refused("the network namespace"))?;
        let link = program.attach(namespace).map_err(refused("attaching the BPF program to the network namespace"))?;
        let link: FdLink = program.take_link(link).map_err(refused("the link of the BPF program"))?.into();
        link.pin(folder.way(LINK)).map_err(refused("pinning the link of the BPF program"))?;
        Ok(())
    }

    /// Sockets first, then the colour, then the addresses: at no moment anybody is sent to nobody.
    fn fill(&self, places: &[SocketAddr], sockets: &[(Slot, BorrowedFd<'_>)], active: u32) -> Result<(), BpfError> {
        for (slot, socket) in sockets {
            self.put(*slot, *socket)?;
        }
        self.activate(active)?;
        let mut map = self.places_map()?;
        let wanted: Vec<AddressKey> = places.iter().map(place).collect();
        for place in &wanted {
            map.insert(place, 1, 0).map_err(refused("an address"))?;
        }
        let there: Vec<AddressKey> = map.keys().collect::<Result<_, _>>().map_err(refused("the addresses"))?;
        for old in there.iter().filter(|place| !wanted.contains(place)) {
            map.remove(old).map_err(refused("an address"))?;
        }
        Ok(())
    }

    /// Which colour is active; `None` when nothing is there.
    ///
    /// # Errors
    /// When something is there that is not whole, is tied to another network namespace than this thread's or to one that has
    /// ended, or cannot be read.
    pub fn active(&self) -> Result<Option<u32>, BpfError> {
        let Some(folder) = self.found()? else { return Ok(None) };
        let way = folder.way_to(LINK).map_err(refused("the link of the BPF program"))?;
        let link = PinnedLink::from_pin(way.path()).map_err(refused("the link of the BPF program"))?;
        is_of_this_namespace(&link.into())?;
        self.map(SOCKETS)?;
        self.cookies_map()?;
        self.counts_map()?;
        self.places_map()?;
        self.active_map()?.get(&0, 0).map(Some).map_err(refused("the active colour"))
    }

    /// How many new connections went to a place since all this was made. A client that asked twice for its connection, because
    /// an answer was lost, is counted twice.
    ///
    /// # Errors
    /// When nothing is there, or it cannot be read.
    pub fn count(&self, slot: Slot) -> Result<u64, BpfError> {
        self.counts_map()?.get(&slot.index(), 0).map_err(refused("the map of counts"))
    }

    /// The addresses that are meant.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn places(&self) -> Result<Vec<SocketAddr>, BpfError> {
        let map = self.places_map()?;
        map.keys().map(|key| key.map(|key| address(&key))).collect::<Result<_, _>>().map_err(refused("the addresses"))
    }

    /// Makes a colour the active one, from one connection to the next.
    ///
    /// # Errors
    /// When nothing is there, or it may not be changed.
    pub fn activate(&self, colour: u32) -> Result<(), BpfError> {
        self.active_map()?.set(0, colour & 1, 0).map_err(refused("the active colour"))
    }

    /// Puts a listening socket into its place, instead of the one that is there.
    ///
    /// # Errors
    /// When nothing is there, it may not be changed, or the socket does not listen for TCP.
    pub fn put(&self, slot: Slot, socket: BorrowedFd<'_>) -> Result<(), BpfError> {
        let number = socket.as_raw_fd();
        let mut map = self.sockets_map()?;
        map.set(slot.index(), &number, 0).map_err(refused("the map of sockets"))?;
        let cookie = SockRef::from(&socket).cookie().map_err(refused("the cookie of a socket"))?;
        self.cookies_map()?.set(slot.index(), cookie, 0).map_err(refused("the map of sockets"))
    }

    /// The cookie of the socket that was put into a place last; the socket may be closed by now. `None` when none was.
    ///
    /// # Errors
    /// When nothing is there, or it cannot be read.
    pub fn cookie(&self, slot: Slot) -> Result<Option<u64>, BpfError> {
        let cookie = self.cookies_map()?.get(&slot.index(), 0).map_err(refused("the map of sockets"))?;
        Ok(Some(cookie).filter(|&cookie| cookie != 0))
    }

    /// Ends it, the link first. It is no error when nothing is there.
    ///
    /// # Errors
    /// When files could not be removed.
    pub fn remove(&self) -> Result<(), BpfError> {
        // The kernel unties a program a moment after its link is gone; without addresses it has nothing to say from now on.
        if let Ok(mut map) = self.places_map() {
            let there: Vec<AddressKey> = map.keys().flatten().collect();
            for place in there {
                let _ = map.remove(&place);
            }
        }
        let Some(folder) = self.found()? else { return Ok(()) };
        FILES.into_iter().try_for_each(|name| folder.unpin(name)).and_then(|()| folder.remove()).map_err(out_of_reach)
    }

    fn map(&self, name: &str) -> Result<MapData, BpfError> {
        let folder = self.found()?.ok_or_else(|| refused("a BPF map")(io::Error::from(io::ErrorKind::NotFound)))?;
        MapData::from_fd(folder.object(name).map_err(refused("a BPF map"))?).map_err(refused("a BPF map"))
    }

    fn active_map(&self) -> Result<Array<MapData, u32>, BpfError> {
        Array::try_from(Map::Array(self.map(ACTIVE)?)).map_err(refused("a BPF map"))
    }

    fn cookies_map(&self) -> Result<Array<MapData, u64>, BpfError> {
        Array::try_from(Map::Array(self.map(COOKIES)?)).map_err(refused("a BPF map"))
    }

    fn counts_map(&self) -> Result<Array<MapData, u64>, BpfError> {
        Array::try_from(Map::Array(self.map(COUNTS)?)).map_err(refused("a BPF map"))
    }

    fn sockets_map(&self) -> Result<SockMap<MapData>, BpfError> {
        SockMap::try_from(Map::SockMap(self.map(SOCKETS)?)).map_err(refused("a BPF map"))
    }

    fn places_map(&self) -> Result<HashMap<MapData, AddressKey, u32>, BpfError> {
        HashMap::try_from(Map::HashMap(self.map(PLACES)?)).map_err(refused("a BPF map"))
    }
}

/// Sees that a link ties its program to the network namespace of this thread.
fn is_of_this_namespace(link: &FdLink) -> Result<(), BpfError> {
    const DOING: &str = "the link of the BPF program";
    let id = link.info().map_err(refused(DOING))?.id();
    let ours = fs::metadata(NAMESPACE).map_err(refused("the network namespace"))?.ino();
    // What a link says of its namespace is told here alone without a call of our own; `link` is one of the descriptors.
    let entries = fs::read_dir(DESCRIPTORS).map_err(refused(DOING))?;
    let texts = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let found =
        texts.filter(|text| number(text, "link_id:") == Some(id.into())).find_map(|text| number(&text, "netns_ino:"));
    let said = match found {
        Some(found) if found == ours => return Ok(()),
        Some(0) => "its network namespace has ended".to_owned(),
        Some(other) => format!("it is attached to another network namespace ({other})"),
        None => "the kernel does not report which network namespace it is attached to".to_owned(),
    };
    Err(BpfError { doing: DOING, said, remedy: String::new(), is_no_right: false })
}

/// The number that follows a word at the beginning of a line.
fn number(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
}

/// As the program sees an address: all zeroes is any.
fn place(address: &SocketAddr) -> AddressKey {
    let mut place = [0; 6];
    place[1] = u32::from(address.port());
    match address.ip() {
        IpAddr::V4(ip) => {
            place[0] = libc::AF_INET as u32;
            place[2] = u32::from_ne_bytes(ip.octets());
        }
        IpAddr::V6(ip) => {
            place[0] = libc::AF_INET6 as u32;
            for (word, bytes) in place[2..].iter_mut().zip(ip.octets().as_chunks().0) {
                *word = u32::from_ne_bytes(*bytes);
            }
        }
    }
    place
}

fn address(place: &AddressKey) -> SocketAddr {
    let port = place[1] as u16;
    if place[0] == libc::AF_INET as u32 {
        return SocketAddr::from((place[2].to_ne_bytes(), port));
    }
    let mut octets = [0; 16];
    for (bytes, word) in octets.chunks_exact_mut(4).zip(&place[2..]) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    SocketAddr::from((octets, port))
}

#[cfg(test)]
mod tests;
