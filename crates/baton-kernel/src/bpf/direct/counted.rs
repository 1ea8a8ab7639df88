//! Counters of which every processor has its own.
//!
//! The library looks into /sys for the number of processors at each question, which a process in a jail cannot; here it is
//! known from the beginning.

use std::io;

use aya::maps::{MapData, MapType};

use crate::bpf::syscall;

/// A map of type `BPF_MAP_TYPE_PERCPU_ARRAY` whose values are so many 64-bit numbers.
#[derive(Debug)]
pub(super) struct Counted<const NUMBERS: usize> {
    map: MapData,
    processors: usize,
}

impl<const NUMBERS: usize> Counted<NUMBERS> {
    /// Of a map.
    pub(super) fn new(map: MapData) -> io::Result<Self> {
        let is_it = map.info().is_ok_and(|info| {
            let is_per_processor = info.map_type().is_ok_and(|kind| kind == MapType::PerCpuArray);
            is_per_processor && info.value_size() as usize == NUMBERS * 8 && info.key_size() == 4
        });
        if !is_it {
            return Err(io::Error::other("a map of counters has another layout"));
        }
        let processors = aya::util::nr_cpus().map_err(|(_, error)| error)?;
        Ok(Self { map, processors })
    }

    /// The sums over all processors.
    pub(super) fn sum(&self, slot: u32) -> io::Result<[u64; NUMBERS]> {
        let mut values = vec![[0; NUMBERS]; self.processors];
        // SAFETY: `new` saw that it is such a map of such values, and there is one for each possible processor.
        unsafe { syscall::read_all(self.map.fd(), slot, &mut values) }?;
        let mut sum = [0; NUMBERS];
        for one in &values {
            sum.iter_mut().zip(one).for_each(|(sum, one): (&mut u64, &u64)| *sum = sum.wrapping_add(*one));
        }
        Ok(sum)
    }

    /// Resets a slot to 0 on all processors.
    pub(super) fn clear(&mut self, slot: u32) -> io::Result<()> {
        let mut values = vec![[0; NUMBERS]; self.processors];
        // SAFETY: `new` saw that it is such a map of such values, and there is one for each possible processor.
        unsafe { syscall::write_all(self.map.fd(), slot, &mut values) }
    }
}
