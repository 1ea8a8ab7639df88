//! Maps whose keys are numbers from 0, read as a whole by one call: asking for thousands of elements one by one takes milliseconds.

use std::io;
use std::marker::PhantomData;

use aya::Pod;
use aya::maps::{MapData, MapType};

use crate::bpf::syscall;

/// A map of type `BPF_MAP_TYPE_ARRAY` of such values.
#[derive(Debug)]
pub(super) struct Elements<T> {
    map: MapData,
    count: usize,
    of: PhantomData<T>,
}

impl<T: Pod + Default> Elements<T> {
    /// Of a map.
    pub(super) fn new(map: MapData) -> io::Result<Self> {
        let info = map.info().map_err(io::Error::other)?;
        let is_array = info.map_type().is_ok_and(|kind| kind == MapType::Array);
        if !is_array || info.value_size() as usize != size_of::<T>() || info.key_size() != 4 {
            return Err(io::Error::other("a map of slots has another layout"));
        }
        let count = info.max_entries() as usize;
        Ok(Self { map, count, of: PhantomData })
    }

    /// All of them, in their order.
    pub(super) fn all(&self) -> io::Result<Vec<T>> {
        let mut values = vec![T::default(); self.count];
        // SAFETY: `new` saw that it is such a map, with values as long as a `T` and keys of four bytes.
        unsafe { syscall::read_many(self.map.fd(), &mut values) }?;
        Ok(values)
    }

    /// One of them.
    pub(super) fn get(&self, slot: u32) -> io::Result<T> {
        let mut value = T::default();
        // SAFETY: as above.
        unsafe { syscall::read(self.map.fd(), slot, &mut value) }?;
        Ok(value)
    }

    /// Changes one of them.
    pub(super) fn set(&mut self, slot: u32, value: &T) -> io::Result<()> {
        // SAFETY: as above.
        unsafe { syscall::write(self.map.fd(), slot, value) }
    }
}
