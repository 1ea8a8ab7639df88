//! Counters of which every processor has its own.
//!
//! The library looks into /sys for the number of processors at each question, which a process in a jail cannot; here it is
//! known from the beginning.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use aya::maps::MapData;

/// Commands of bpf(2).
const LOOK_UP: libc::c_long = 1;
const UPDATE: libc::c_long = 2;

/// The part of `union bpf_attr` for elements of maps.
#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// A map of type `BPF_MAP_TYPE_PERCPU_ARRAY` whose values are so many 64-bit numbers.
#[derive(Debug)]
pub(super) struct Counted<const NUMBERS: usize> {
    map: MapData,
    processors: usize,
}

impl<const NUMBERS: usize> Counted<NUMBERS> {
    /// Of a map.
    pub(super) fn new(map: MapData) -> io::Result<Self> {
        let is_it = map.info().is_ok_and(|info| info.value_size() as usize == NUMBERS * 8 && info.key_size() == 4);
        if !is_it {
            return Err(io::Error::other("a map of counters has another layout"));
        }
        let processors = aya::util::nr_cpus().map_err(|(_, error)| error)?;
        Ok(Self { map, processors })
    }

    /// The sums over all processors.
    pub(super) fn sum(&self, slot: u32) -> io::Result<[u64; NUMBERS]> {
        let mut values = vec![[0; NUMBERS]; self.processors];
        self.ask(LOOK_UP, slot, &mut values)?;
        let mut sum = [0; NUMBERS];
        for one in &values {
            sum.iter_mut().zip(one).for_each(|(sum, one): (&mut u64, &u64)| *sum = sum.wrapping_add(*one));
        }
        Ok(sum)
    }

    /// Begins from 0 on all processors.
    pub(super) fn clear(&mut self, slot: u32) -> io::Result<()> {
        self.ask(UPDATE, slot, &mut vec![[0; NUMBERS]; self.processors])
    }

    fn ask(&self, command: libc::c_long, slot: u32, values: &mut [[u64; NUMBERS]]) -> io::Result<()> {
        debug_assert_eq!(values.len(), self.processors);
        let element = Element {
            map: self.map.fd().as_fd().as_raw_fd() as u32,
            padding: 0,
            key: (&raw const slot) as u64,
            value: values.as_mut_ptr() as u64,
            flags: 0,
        };
        // SAFETY: the kernel reads the attribute, whose size is given, and four bytes of the key, as `new` has seen; it reads or
        // writes one value for each possible processor, rounded up to 8 bytes, which is the room that `values` has. All of
        // them live until it returns, and any bits are numbers.
        let done = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const element, size_of::<Element>()) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
