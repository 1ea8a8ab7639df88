//! What the library does not offer of bpf(2): links and pins by descriptors, which work in a jail, and elements of which every
//! processor has its own.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use aya::Pod;

/// Commands (`enum bpf_cmd`).
const MAP_LOOK_UP: libc::c_long = 1;
const MAP_UPDATE: libc::c_long = 2;
const OBJECT_PIN: libc::c_long = 6;
const OBJECT_GET: libc::c_long = 7;
const MAP_LOOK_UP_BATCH: libc::c_long = 24;
const LINK_CREATE: libc::c_long = 28;
const LINK_UPDATE: libc::c_long = 29;
const LINK_DETACH: libc::c_long = 34;
/// `BPF_XDP` and `BPF_TCX_INGRESS` (Linux 6.6) of `enum bpf_attach_type`.
const ATTACH_XDP: u32 = 37;
const ATTACH_TCX: u32 = 46;
/// `BPF_F_PATH_FD` (Linux 6.5).
const PATH_FD: u32 = 1 << 14;
/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` (linux/if_link.h).
pub(super) const GENERIC: u32 = 1 << 1;
pub(super) const NATIVE: u32 = 1 << 2;

/// The parts of `union bpf_attr` for elements of maps, for pins and for links, made and ended.
#[repr(C)]
struct ElementAttributes {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct Batch {
    from: u64,
    next: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

#[repr(C)]
struct Pin {
    path: u64,
    object: u32,
    flags: u32,
    folder: i32,
    padding: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
struct LinkDetach {
    link: u32,
}

#[repr(C)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    old_program: u32,
}

/// Ties a program of type XDP to an interface. The link ends with the last descriptor and pin of it.
pub(super) fn link(program: BorrowedFd<'_>, interface: u32, mode: u32) -> io::Result<OwnedFd> {
    tie(program, interface, ATTACH_XDP, mode)
}

/// Ties a program of the network stack to the ingress of an interface, behind those that are there, on the same terms.
pub(super) fn link_in_stack(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    tie(program, interface, ATTACH_TCX, 0)
}

fn tie(program: BorrowedFd<'_>, interface: u32, attach_type: u32, flags: u32) -> io::Result<OwnedFd> {
    let attributes = LinkCreate { program: number(program), interface, attach_type, flags };
    // SAFETY: the kernel reads the attribute, whose size is given.
    let made =
        check(unsafe { libc::syscall(libc::SYS_bpf, LINK_CREATE, &raw const attributes, size_of::<LinkCreate>()) })?;
    // SAFETY: the kernel has just opened it for us, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(made as i32) })
}

/// Puts another program of the same type into a link. No packet passes beside it.
pub(super) fn renew(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = LinkUpdate { link: number(link), program: number(program), flags: 0, old_program: 0 };
    // SAFETY: the kernel reads the attribute, whose size is given.
    check(unsafe { libc::syscall(libc::SYS_bpf, LINK_UPDATE, &raw const attributes, size_of::<LinkUpdate>()) })
        .map(drop)
}

/// Unties what a link ties. It stays, and ties nothing any more.
pub(super) fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = LinkDetach { link: number(link) };
    // SAFETY: the kernel reads the attribute, whose size is given.
    check(unsafe { libc::syscall(libc::SYS_bpf, LINK_DETACH, &raw const attributes, size_of::<LinkDetach>()) })
        .map(drop)
}

/// Opens what is pinned at a path.
pub(super) fn pinned(path: &Path) -> io::Result<OwnedFd> {
    opened(path.as_os_str().as_encoded_bytes(), 0, 0)
}

/// Opens what is pinned under a name in a folder that need not be in reach by a path (Linux 6.5).
pub(super) fn pinned_in(folder: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    opened(name.as_bytes(), PATH_FD, folder.as_raw_fd())
}

fn opened(path: &[u8], flags: u32, folder: i32) -> io::Result<OwnedFd> {
    let path = CString::new(path)?;
    let attributes = Pin { path: path.as_ptr() as u64, object: 0, flags, folder, padding: 0 };
    // Older kernels know the first part only, and take the rest when it is 0.
    // SAFETY: the kernel reads the attribute, whose size is given, and the path up to its zero byte; both live until it returns.
    let opened = check(unsafe { libc::syscall(libc::SYS_bpf, OBJECT_GET, &raw const attributes, size_of::<Pin>()) })?;
    // SAFETY: the kernel has just opened it for us, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(opened as i32) })
}

/// Pins an object at a path.
pub(super) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    pin_at(object, path.as_os_str().as_encoded_bytes(), 0, 0)
}

/// Pins an object under a name in a folder that need not be in reach by a path (Linux 6.5; `EINVAL` before).
pub(super) fn pin_in(object: BorrowedFd<'_>, folder: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    pin_at(object, name.as_bytes(), PATH_FD, folder.as_raw_fd())
}

fn pin_at(object: BorrowedFd<'_>, path: &[u8], flags: u32, folder: i32) -> io::Result<()> {
    let path = CString::new(path)?;
    let attributes = Pin { path: path.as_ptr() as u64, object: number(object), flags, folder, padding: 0 };
    // Older kernels know the first part only, and take the rest when it is 0.
    // SAFETY: the kernel reads the attribute, whose size is given, and the path up to its zero byte; both live until it returns.
    check(unsafe { libc::syscall(libc::SYS_bpf, OBJECT_PIN, &raw const attributes, size_of::<Pin>()) }).map(drop)
}

/// Reads what all processors have in a slot of a map of type `BPF_MAP_TYPE_PERCPU_ARRAY`.
///
/// # Safety
/// The map must be of this type, its values must be `NUMBERS` 64-bit numbers, and `values` must have one for each possible
/// processor: the kernel reads or writes as much as the map says, wherever `values` end.
pub(super) unsafe fn read_all<const NUMBERS: usize>(
    map: impl AsFd,
    slot: u32,
    values: &mut [[u64; NUMBERS]],
) -> io::Result<()> {
    // SAFETY: as the caller promises.
    unsafe { all(MAP_LOOK_UP, map.as_fd(), slot, values) }
}

/// Writes it.
///
/// # Safety
/// As [`read_all`].
pub(super) unsafe fn write_all<const NUMBERS: usize>(
    map: impl AsFd,
    slot: u32,
    values: &mut [[u64; NUMBERS]],
) -> io::Result<()> {
    // SAFETY: as the caller promises.
    unsafe { all(MAP_UPDATE, map.as_fd(), slot, values) }
}

/// # Safety
/// As [`read_all`].
unsafe fn all<const NUMBERS: usize>(
    command: libc::c_long,
    map: BorrowedFd<'_>,
    slot: u32,
    values: &mut [[u64; NUMBERS]],
) -> io::Result<()> {
    let (key, value) = ((&raw const slot) as u64, values.as_mut_ptr() as u64);
    let attributes = ElementAttributes { map: number(map), padding: 0, key, value, flags: 0 };
    // SAFETY: the kernel reads the attribute, whose size is given, and the four bytes of the key; it reads or writes one value for each
    // possible processor, a multiple of 8 bytes, which is the room that `values` has by the terms above. All of them live
    // until it returns, and any bits are numbers.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, &raw const attributes, size_of::<ElementAttributes>()) })
        .map(drop)
}

/// Reads the first elements of a map of type `BPF_MAP_TYPE_ARRAY`, as many as there is room for; fewer are an error.
///
/// # Safety
/// The map must be of this type, with keys of four bytes, and its values must be as long as a `T`: the kernel writes as much as the
/// map says.
pub(super) unsafe fn read_many<T: Pod>(map: impl AsFd, values: &mut [T]) -> io::Result<()> {
    let mut keys = vec![0_u32; values.len()];
    let mut next = 0_u32;
    let mut attributes = Batch {
        from: 0,
        next: (&raw mut next) as u64,
        keys: keys.as_mut_ptr() as u64,
        values: values.as_mut_ptr() as u64,
        count: values.len() as u32,
        map: number(map.as_fd()),
        element_flags: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads the attribute, whose size is given, and writes the count in it; it writes at most `count` keys of four
    // bytes, `count` values of the map, which are as long as `T`, for which any bytes are a value, and a key of four bytes. There is room for
    // each, and all of it lives until the call returns.
    let read =
        check(unsafe { libc::syscall(libc::SYS_bpf, MAP_LOOK_UP_BATCH, &raw mut attributes, size_of::<Batch>()) });
    match read {
        // That it was the last one.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
        read => drop(read?),
    }
    match attributes.count as usize == values.len() {
        true => Ok(()),
        false => Err(io::Error::other("a map has fewer elements than was known")),
    }
}

fn number(descriptor: BorrowedFd<'_>) -> u32 {
    descriptor.as_raw_fd() as u32
}

fn check(done: libc::c_long) -> io::Result<libc::c_long> {
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}
