//! Direct routing by XDP: the BPF program `direct.c`, its maps, and where they outlive us. `stack.c` is the same program for the ingress
//! of the network stack, with the same maps.
//!
//! All is pinned in one folder of a BPF file system for each network namespace: the maps, and a link for each interface that ties the
//! program to it. As long as they are there, packets are forwarded, whether a process of ours lives or not. A new process
//! finds the maps, and puts its own program into the links without a packet passing beside it.
//!
//! Here are the maps as they are; what is to be in them, the engine of `baton-direct` decides.

mod aside;
mod counted;
mod driver;
mod elements;
mod links;
mod remembered;
mod slots;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aya::maps::{Array, HashMap, Map, MapData, MapError};
use aya::programs::{ProgramError, SchedClassifier, TestRun, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader};
use socket2::{Domain, Socket, Type};

use super::folder::{Folder, HeldPath};
use super::{BpfError, FILE_SYSTEM, mounted, refused};
use crate::KernelError;
use crate::sockopt;
use counted::Counted;
use elements::Elements;
use links::link_of;

pub use driver::{Driver, driver, joins_packets, strips_tags};
pub use links::XdpMode;
pub use remembered::{memory, processors};
pub use slots::*;

/// The compiled programs: for drivers, and for the network stack.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/direct.o"));
static STACK: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/stack.o"));

/// Changes with the structures of the maps and what they mean.
const VERSION: u32 = 1;
/// `SERVICES_MAX` of maps.h.
pub const SERVICES_MAX: usize = 256;
/// `SERVERS_MAX` of maps.h.
pub const SERVERS_MAX: usize = 4096;
/// Connections that can be remembered at most, whatever is asked for.
const FLOWS_MAX: u32 = 1 << 24;
/// Bytes that a test packet may grow by: two VLAN tags.
const GROWTH: usize = 8;

/// The maps' names in maps.h, and their files'.
const MAPS: [&str; 10] =
    ["places", "macs", "services", "servers", "tables", "flows", "of_services", "of_servers", "reasons", "layout"];

/// What the program decided about a packet (`enum xdp_action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpAction {
    /// Gone (`XDP_DROP`).
    Drop,
    /// To the network stack (`XDP_PASS`).
    Pass,
    /// Back where it came from (`XDP_TX`).
    Send,
    /// By another interface (`XDP_REDIRECT`).
    Redirect,
    /// Anything else, which the program never returns.
    Wrong(u32),
}

/// Maps and links in one folder.
pub struct Direct {
    folder: Folder,
    program: Option<Ebpf>,
    in_stack: Option<Ebpf>,
    places: HashMap<MapData, VirtualAddressKey, u32>,
    macs: HashMap<MapData, OwnMac, u32>,
    services: Elements<ServiceSlot>,
    servers: Elements<ServerSlot>,
    tables: Array<MapData, LookupTable>,
    flows: HashMap<MapData, FlowKey, Flow>,
    of_services: Counted<3>,
    of_servers: Counted<3>,
    reasons: Counted<1>,
    /// All of the maps once more, to be pinned again.
    maps: Vec<(&'static str, MapData)>,
    /// Nothing is pinned; see `aside`.
    is_aside: bool,
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").field("folder", &self.folder.path()).finish_non_exhaustive()
    }
}

/// The folder of this thread's network namespace.
///
/// # Errors
/// Without `/proc`.
pub fn folder() -> Result<PathBuf, KernelError> {
    use std::os::unix::fs::MetadataExt;
    let namespace = fs::metadata("/proc/thread-self/ns/net");
    let namespace = namespace.map_err(|error| KernelError::io("/proc/thread-self/ns/net", &error))?;
    Ok(Path::new(FILE_SYSTEM).join("baton-direct").join(namespace.ino().to_string()))
}

/// Whether programs can be pinned in this folder.
///
/// # Errors
/// That no BPF file system is mounted, and what to do.
pub fn check(folder: &Path) -> Result<(), KernelError> {
    mounted(folder).map_err(fault)
}

impl Direct {
    /// What is there; `None` for nothing, or for something that was never finished or belonged to a network namespace that is gone.
    ///
    /// # Errors
    /// When it is another version's, or cannot be read.
    pub fn find(folder: &Path) -> Result<Option<Direct>, KernelError> {
        let Some(folder) = Folder::find(folder)?.filter(|folder| folder.has("layout")) else { return Ok(None) };
        let layout: Array<MapData, Layout> = Array::try_from(Map::Array(map(&folder, "layout")?)).map_err(other)?;
        let layout = layout.get(&0, 0).map_err(refused("the map layout")).map_err(fault)?;
        if layout.version == 0 || layout.namespace != namespace() {
            return Ok(None);
        }
        if layout.version != VERSION {
            let path = folder.path().display();
            return Err(KernelError::new(
                path.to_string(),
                format!("its maps have version {}, and this program uses version {VERSION}", layout.version),
                format!(
                    "stop the Baton that created them with `on-exit flush`, or remove the directory (rm -r {path}): either \
                     ends the forwarded connections"
                ),
            ));
        }
        Direct::open(folder).map(Some)
    }

    /// What is there, or a new set of maps that remembers `flows` connections.
    ///
    /// # Errors
    /// As [`find`](Self::find), and what the kernel refuses; then nothing is left of it.
    pub fn make(folder: &Path, flows: u32) -> Result<Direct, KernelError> {
        check(folder)?;
        if let Some(there) = Direct::find(folder)? {
            return Ok(there);
        }
        // The folder itself stays if it is there: another process of ours may have it open.
        let folder = Folder::make(folder)?;
        // Of what is found there from now on, all is ours.
        folder.claim()?;
        unpin_all(&folder)?;
        let made = Direct::make_anew(folder.again()?, flows.clamp(1, FLOWS_MAX));
        if made.is_err() {
            let _ = remove_all(&folder);
        }
        made
    }

    fn make_anew(folder: Folder, flows: u32) -> Result<Direct, KernelError> {
        let program = load(&folder, flows)?;
        let mut direct = Direct::open(folder)?;
        direct.program = Some(program);
        let layout = map(&direct.folder, "layout")?;
        let mut layout: Array<MapData, Layout> = Array::try_from(Map::Array(layout)).map_err(other)?;
        let own = Layout { version: VERSION, zero: 0, namespace: namespace() };
        layout.set(0, own, 0).map_err(refused("the map layout")).map_err(fault)?;
        Ok(direct)
    }

    fn open(folder: Folder) -> Result<Direct, KernelError> {
        Ok(Direct {
            program: None,
            in_stack: None,
            places: HashMap::try_from(Map::HashMap(map(&folder, "places")?)).map_err(other)?,
            macs: HashMap::try_from(Map::HashMap(map(&folder, "macs")?)).map_err(other)?,
            services: Elements::new(map(&folder, "services")?).map_err(other)?,
            servers: Elements::new(map(&folder, "servers")?).map_err(other)?,
            tables: Array::try_from(Map::Array(map(&folder, "tables")?)).map_err(other)?,
            flows: HashMap::try_from(Map::LruHashMap(map(&folder, "flows")?)).map_err(other)?,
            of_services: Counted::new(map(&folder, "of_services")?).map_err(other)?,
            of_servers: Counted::new(map(&folder, "of_servers")?).map_err(other)?,
            reasons: Counted::new(map(&folder, "reasons")?).map_err(other)?,
            maps: MAPS.into_iter().map(|name| Ok((name, map(&folder, name)?))).collect::<Result<_, KernelError>>()?,
            is_aside: false,
            folder,
        })
    }

    fn program(&mut self) -> Result<&mut Xdp, KernelError> {
        let loaded = match self.program.take() {
            Some(loaded) => loaded,
            None => load(&self.folder, 0)?,
        };
        let program = self.program.insert(loaded).program_mut("direct").expect("it is in direct.c");
        program.try_into().map_err(|error: ProgramError| other(error))
    }

    fn program_in_stack(&mut self) -> Result<&mut SchedClassifier, KernelError> {
        let loaded = match self.in_stack.take() {
            Some(loaded) => loaded,
            None => {
                let mut object = load_object(&self.folder, 0, STACK)?;
                let program = object.program_mut("stack").expect("it is in stack.c");
                let program: &mut SchedClassifier = program.try_into().map_err(other)?;
                program.load().map_err(refused("loading the BPF program")).map_err(fault)?;
                object
            }
        };
        let program = self.in_stack.insert(loaded).program_mut("stack").expect("it is in stack.c");
        program.try_into().map_err(|error: ProgramError| other(error))
    }

    /// What the program would do with a packet that comes in on the interface with number 1 of this network namespace, which is
    /// the loopback; and what would leave. Connections are remembered and counted as ever. At least 14 bytes.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn run(&mut self, packet: &[u8]) -> Result<(XdpAction, Vec<u8>), KernelError> {
        let mut after = vec![0; packet.len() + GROWTH];
        let options = TestRunOptions { data_in: Some(packet), data_out: Some(&mut after), ..TestRunOptions::default() };
        let result = self.program()?.test_run(options).map_err(refused("running the BPF program")).map_err(fault)?;
        after.truncate(result.data_size_out as usize);
        let verdict = match result.return_value {
            1 => XdpAction::Drop,
            2 => XdpAction::Pass,
            3 => XdpAction::Send,
            4 => XdpAction::Redirect,
            wrong => XdpAction::Wrong(wrong),
        };
        Ok((verdict, after))
    }

    /// The slot of a service.
    ///
    /// # Errors
    /// Of the kernel; that there is no such slot.
    pub fn service(&self, slot: u32) -> Result<ServiceSlot, KernelError> {
        self.services.get(slot).map_err(refused("a service")).map_err(fault)
    }

    /// All slots of services, free ones too, in their order.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn services(&self) -> Result<Vec<ServiceSlot>, KernelError> {
        self.services.all().map_err(refused("the services")).map_err(fault)
    }

    /// Changes the slot of a service.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn set_service(&mut self, slot: u32, service: &ServiceSlot) -> Result<(), KernelError> {
        self.services.set(slot, service).map_err(refused("a service")).map_err(fault)
    }

    /// The slot of a server.
    ///
    /// # Errors
    /// Of the kernel; that there is no such slot.
    pub fn server(&self, slot: u32) -> Result<ServerSlot, KernelError> {
        self.servers.get(slot).map_err(refused("a server")).map_err(fault)
    }

    /// All slots of servers, free ones too, in their order.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn servers(&self) -> Result<Vec<ServerSlot>, KernelError> {
        self.servers.all().map_err(refused("the servers")).map_err(fault)
    }

    /// Changes the slot of a server.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn set_server(&mut self, slot: u32, server: &ServerSlot) -> Result<(), KernelError> {
        self.servers.set(slot, server).map_err(refused("a server")).map_err(fault)
    }

    /// Writes one of the tables, of which every service has two: twice its slot's number, and one more.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn set_table(&mut self, number: u32, table: &LookupTable) -> Result<(), KernelError> {
        self.tables.set(number, table, 0).map_err(refused("a table")).map_err(fault)
    }

    /// Which slot packets for a place belong to.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn set_place(&mut self, place: &VirtualAddressKey, slot: u32) -> Result<(), KernelError> {
        self.places.insert(place, slot, 0).map_err(refused("a virtual address")).map_err(fault)
    }

    /// Packets for a place belong to no service any more; it is no error when they did not before.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn remove_place(&mut self, place: &VirtualAddressKey) -> Result<(), KernelError> {
        gone(self.places.remove(place)).map_err(refused("a virtual address")).map_err(fault)
    }

    /// All places, with their slots.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn places(&self) -> Result<Vec<(VirtualAddressKey, u32)>, KernelError> {
        self.places.iter().collect::<Result<_, _>>().map_err(refused("the virtual addresses")).map_err(fault)
    }

    /// The interfaces' MAC addresses for which packets are taken: these, and no others.
    ///
    /// # Errors
    /// Of the kernel, such as that there are too many.
    pub fn set_macs(&mut self, wanted: &[OwnMac]) -> Result<(), KernelError> {
        for mac in wanted {
            self.macs.insert(mac, 1, 0).map_err(refused("a MAC address of an interface")).map_err(fault)?;
        }
        let there: Vec<OwnMac> = self.macs.keys().flatten().collect();
        for old in there.iter().filter(|mac| !wanted.contains(mac)) {
            gone(self.macs.remove(old)).map_err(refused("a MAC address of an interface")).map_err(fault)?;
        }
        Ok(())
    }

    /// What is remembered of a connection.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn flow(&self, key: &FlowKey) -> Result<Option<Flow>, KernelError> {
        match self.flows.get(key, 0) {
            Ok(flow) => Ok(Some(flow)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(fault(refused("a connection")(error))),
        }
    }

    /// What was counted of a service's slot, by all processors.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn counted_of_service(&self, slot: u32) -> Result<SlotCounters, KernelError> {
        self.of_services.sum(slot).map(counters).map_err(refused("counters")).map_err(fault)
    }

    /// What was counted of a server's slot, by all processors.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn counted_of_server(&self, slot: u32) -> Result<SlotCounters, KernelError> {
        self.of_servers.sum(slot).map(counters).map_err(refused("counters")).map_err(fault)
    }

    /// Resets the counters of a service's slot to 0.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn clear_service(&mut self, slot: u32) -> Result<(), KernelError> {
        self.of_services.clear(slot).map_err(refused("counters")).map_err(fault)
    }

    /// Resets the counters of a server's slot to 0.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn clear_server(&mut self, slot: u32) -> Result<(), KernelError> {
        self.of_servers.clear(slot).map_err(refused("counters")).map_err(fault)
    }

    /// How many packets were not just forwarded, for this reason.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn reason(&self, reason: Reason) -> Result<u64, KernelError> {
        let [packets] = self.reasons.sum(reason as u32).map_err(refused("counters")).map_err(fault)?;
        Ok(packets)
    }

    /// Ends it: no packet is forwarded any more, and nothing is remembered.
    ///
    /// # Errors
    /// When files could not be removed.
    pub fn remove(mut self) -> Result<(), KernelError> {
        self.forward_nothing();
        remove_all(&self.folder)
    }

    /// The kernel unties a program a moment after its link is gone; without services it has nothing to do from now on.
    fn forward_nothing(&mut self) {
        let there: Vec<VirtualAddressKey> = self.places.keys().flatten().collect();
        for place in there {
            let _ = self.places.remove(&place);
        }
    }

    /// Gives all of it to a user and a group, for a process that gives up root: it can go on with what it has open, and remove it.
    ///
    /// # Errors
    /// Without the right to.
    pub fn give_to(&mut self, user: u32, group: u32) -> Result<(), KernelError> {
        // Loading takes root's rights, and is done by now.
        self.program()?;
        // Older kernels may not take it.
        let _ = self.program_in_stack();
        let names = self.folder.names()?;
        let links = names.iter().map(String::as_str).filter(|name| link_of(name).is_some());
        self.folder.give_to(links.chain(MAPS), user, group)
    }
}

/// Reads programs with the maps of a folder; or with new ones there, for so many connections.
fn load_object(folder: &Folder, flows: u32, object: &[u8]) -> Result<Ebpf, KernelError> {
    let mut loader = EbpfLoader::new();
    let mut ways: Vec<(&str, HeldPath)> = Vec::new();
    if flows > 0 {
        loader.map_max_entries("flows", flows);
        for name in MAPS {
            loader.map_pin_path(name, folder.way(name));
        }
    } else {
        for name in MAPS {
            ways.push((name, folder.way_to(name).map_err(refused("a BPF map")).map_err(fault)?));
        }
        for (name, way) in &ways {
            loader.map_pin_path(name, way.path());
        }
    }
    loader.load(object).map_err(refused("loading the BPF program")).map_err(fault)
}

/// Loads the program for drivers.
fn load(folder: &Folder, flows: u32) -> Result<Ebpf, KernelError> {
    let mut object = load_object(folder, flows, OBJECT)?;
    let program: &mut Xdp = object.program_mut("direct").expect("it is in direct.c").try_into().map_err(other)?;
    program.load().map_err(refused("loading the BPF program")).map_err(fault)?;
    Ok(object)
}

/// Removes a folder and all in it.
fn remove_all(folder: &Folder) -> Result<(), KernelError> {
    unpin_all(folder)?;
    folder.remove()
}

/// Removes links first, then all else.
fn unpin_all(folder: &Folder) -> Result<(), KernelError> {
    let names = folder.names()?;
    let links = names.iter().map(String::as_str).filter(|name| link_of(name).is_some());
    links.chain(MAPS).try_for_each(|name| folder.unpin(name))
}

/// What no other network namespace has as long as the machine is up; 0 where the kernel does not say (Linux before 5.14).
fn namespace() -> u64 {
    let mut cookie = [0; 8];
    let socket = Socket::new(Domain::UNIX, Type::DGRAM.cloexec(), None);
    let read =
        socket.and_then(|socket| sockopt::bytes_of(&socket, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut cookie));
    if read.is_ok_and(|length| length == cookie.len()) { u64::from_ne_bytes(cookie) } else { 0 }
}

fn map(folder: &Folder, name: &str) -> Result<MapData, KernelError> {
    let object = folder.object(name).map_err(refused("a BPF map")).map_err(fault)?;
    MapData::from_fd(object).map_err(refused("a BPF map")).map_err(fault)
}

fn counters([connections, packets, bytes]: [u64; 3]) -> SlotCounters {
    SlotCounters { connections, packets, bytes }
}

/// That something is not there is what was wanted.
fn gone(removed: Result<(), MapError>) -> Result<(), MapError> {
    match removed {
        Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn fault(refused: BpfError) -> KernelError {
    let (said, remedy) = refused.parts();
    KernelError::new("engine xdp", said, remedy)
}

/// What only another version of these maps brings about.
fn other(error: impl std::error::Error) -> KernelError {
    fault(refused("the BPF objects")(error))
}

#[cfg(test)]
mod tests;
