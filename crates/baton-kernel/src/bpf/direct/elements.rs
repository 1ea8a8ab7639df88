//! Maps whose keys are numbers from 0, read as a whole by one call: asking for thousands of elements one by one takes milliseconds.

use std::io;

use aya::Pod;
use aya::maps::{Array, IterableMap, Map, MapData, MapError};

use crate::bpf::syscall;

/// A map of type `BPF_MAP_TYPE_ARRAY` of such values.
pub(super) struct Elements<T: Pod>(Array<MapData, T>);

impl<T: Pod + Default> Elements<T> {
    /// Of a map.
    ///
    /// # Errors
    /// When it is of another type, or its values are of another size.
    pub(super) fn new(map: MapData) -> Result<Self, MapError> {
        Map::from_map_data(map)?.try_into().map(Self)
    }

    /// All of them, in their order.
    pub(super) fn all(&self) -> io::Result<Vec<T>> {
        let mut values = vec![T::default(); self.0.len() as usize];
        // SAFETY: `Array` is a map of this type with keys of four bytes and values as long as a `T`, or `new` would have failed.
        unsafe { syscall::read_many(self.0.map().fd(), &mut values) }?;
        Ok(values)
    }

    /// One of them.
    pub(super) fn get(&self, slot: u32) -> io::Result<T> {
        self.0.get(&slot, 0).map_err(io_error)
    }

    /// Changes one of them.
    pub(super) fn set(&mut self, slot: u32, value: &T) -> io::Result<()> {
        self.0.set(slot, value, 0).map_err(io_error)
    }
}

/// What the system said, without the name of the call.
fn io_error(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        other => io::Error::other(other),
    }
}
