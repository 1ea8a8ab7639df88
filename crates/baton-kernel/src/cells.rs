//! Counters in memory that another process can read after this one is gone, however it ended.
//!
//! A [`CellMemory`] is a memory file that is mapped piece by piece. Whoever counts takes [`Cells`] from it under a name and adds to
//! them as to any other atomics; nothing is written or sent besides, so that counting costs no more than elsewhere. A process that
//! holds the file ([`CellMemory::file`]) reads all of it with [`read`], even if the process that counted was killed in the middle of
//! an addition: its memory stays as it was.
//!
//! The file is a row of chunks, and a chunk is a row of records without gaps, in units of eight bytes: a header, the name, and the
//! cells, which begin at a cache line. A header of 0 ends a chunk. The header is written last, so that a record is whole or not there.

use std::alloc::{Layout, handle_alloc_error};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Bytes of a chunk; a larger record has one of its own, of several times as many.
const CHUNK_BYTES: usize = 256 * 1024;
/// Bytes of a cell.
const CELL: usize = size_of::<AtomicU64>();
/// Cells in two cache lines, which processors fetch together: the beginning of what one core counts is at such a place.
pub const LINE_CELLS: usize = 16;
/// The longest name in bytes; of a longer one the beginning is kept.
const NAME_MAX: usize = 4096;
/// The most bytes of a file that are read.
const FILE_MAX: u64 = 4 << 30;

/// Memory for cells.
#[derive(Debug)]
pub struct CellMemory {
    /// `None`: nobody else can read it.
    file: Option<File>,
    chunks: Mutex<Chunks>,
}

#[derive(Debug, Default)]
struct Chunks {
    /// Where they are mapped, with their bytes.
    mapped: Vec<(NonNull<AtomicU64>, usize)>,
    /// Cells of the last one that are in use.
    used: usize,
    /// Bytes of the file.
    bytes: usize,
    /// Records that nobody uses, by their size in cells.
    free: HashMap<usize, Vec<NonNull<AtomicU64>>>,
}

// SAFETY: the pointers lead to atomics in mappings that live as long as the memory, and are used under the lock.
unsafe impl Send for Chunks {}

/// Some cells, zero at first. They are given back when this is dropped.
#[derive(Debug)]
pub struct Cells {
    memory: Arc<CellMemory>,
    /// The header.
    record: NonNull<AtomicU64>,
    cells: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: it leads to atomics, in a mapping that `memory` keeps.
unsafe impl Send for Cells {}
// SAFETY: as above.
unsafe impl Sync for Cells {}

impl Deref for Cells {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `CellMemory::take` found room for `count` cells at this place, which no other record has, and `self.memory` keeps
        // it mapped; any content is valid for an atomic number.
        unsafe { slice::from_raw_parts(self.cells.as_ptr(), self.count) }
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        let size = Header::of(header(self.record)).size();
        // SAFETY: as in `deref`; the header is part of the record.
        unsafe { self.record.as_ref() }.store(Header::free(size).0, Ordering::Release);
        self.memory.chunks().free.entry(size).or_default().push(self.record);
    }
}

fn header(record: NonNull<AtomicU64>) -> u64 {
    // SAFETY: records are within mappings that their memory keeps while there are cells of it.
    unsafe { record.as_ref() }.load(Ordering::Relaxed)
}

impl CellMemory {
    /// Memory that another process can read, by its file.
    ///
    /// # Errors
    /// The system's: no descriptor is left, for example.
    pub fn shared() -> io::Result<CellMemory> {
        let file = memfd_create("baton-counters", MFdFlags::MFD_CLOEXEC)?;
        Ok(CellMemory { file: Some(File::from(file)), chunks: Mutex::default() })
    }

    /// Memory of this process alone.
    pub fn private() -> CellMemory {
        CellMemory { file: None, chunks: Mutex::default() }
    }

    /// The file, for a process that is to read it.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Takes cells, which are zero, under a name that another process finds them by. Memory that the system refuses for the file is
    /// taken from this process, and then nobody finds them.
    ///
    /// # Panics
    /// When there is no memory at all, as any allocation.
    pub fn take(self: &Arc<CellMemory>, name: &str, count: usize) -> Cells {
        let name = &name.as_bytes()[..name.len().min(NAME_MAX)];
        let before = (1 + name.len().div_ceil(CELL)).next_multiple_of(LINE_CELLS);
        let size = (before + count).next_multiple_of(LINE_CELLS);
        let record = self.chunks().record(size, self.file.as_ref());
        // SAFETY: `record` begins `size` cells of a mapping that nobody else uses; the name and `count` cells fit in.
        let all = unsafe { slice::from_raw_parts(record.as_ptr(), size) };
        all[1..].iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
        for (cell, bytes) in all[1..].iter().zip(name.chunks(CELL)) {
            let mut word = [0; CELL];
            word[..bytes.len()].copy_from_slice(bytes);
            cell.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        all[0].store(Header::used(size, name.len(), count).0, Ordering::Release);
        Cells { memory: Arc::clone(self), record, cells: NonNull::from(&all[before..]).cast(), count }
    }

    fn chunks(&self) -> std::sync::MutexGuard<'_, Chunks> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CellMemory {
    fn drop(&mut self) {
        for (at, bytes) in self.chunks().mapped.drain(..) {
            // SAFETY: it was mapped with this length, and every `Cells` that leads into it keeps `self`.
            let _ = unsafe { munmap(at.cast(), bytes) };
        }
    }
}

impl Chunks {
    /// Room for a record of `size` cells.
    fn record(&mut self, size: usize, file: Option<&File>) -> NonNull<AtomicU64> {
        if let Some(record) = self.free.get_mut(&size).and_then(Vec::pop) {
            return record;
        }
        let room = self.mapped.last().map_or(0, |(_, bytes)| bytes / CELL - self.used);
        if room < size {
            self.add_chunk(size, file);
        }
        let (chunk, _) = self.mapped[self.mapped.len() - 1];
        // SAFETY: the chunk has room for `size` cells from here on.
        let record = unsafe { chunk.add(self.used) };
        self.used += size;
        record
    }

    fn add_chunk(&mut self, size: usize, file: Option<&File>) {
        let bytes = (size * CELL).next_multiple_of(CHUNK_BYTES);
        let at = file.and_then(|file| self.map(file, bytes).ok()).unwrap_or_else(|| map_private(bytes));
        self.mapped.push((at, bytes));
        self.used = 0;
    }

    /// Makes the file longer and maps what was added.
    fn map(&mut self, file: &File, bytes: usize) -> io::Result<NonNull<AtomicU64>> {
        let (offset, end) = (self.bytes, self.bytes + bytes);
        // With its pages: memory that is missing is an error here, and not the end of whoever counts first.
        fallocate(file, FallocateFlags::empty(), offset as i64, bytes as i64)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice; the file is ours and never gets shorter.
        let at = unsafe { mmap(None, length(bytes), access, MapFlags::MAP_SHARED, file, offset as i64) }?;
        self.bytes = end;
        Ok(at.cast())
    }
}

fn map_private(bytes: usize) -> NonNull<AtomicU64> {
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at a place of the kernel's choice, of nothing that exists.
    let mapped = unsafe { mmap_anonymous(None, length(bytes), access, MapFlags::MAP_PRIVATE) };
    match mapped {
        Ok(at) => at.cast(),
        Err(_) => handle_alloc_error(Layout::array::<AtomicU64>(bytes / CELL).unwrap_or(Layout::new::<AtomicU64>())),
    }
}

fn length(bytes: usize) -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(bytes - 1)
}

/// The first word of a record: its size in cells, the length of its name in bytes, how many cells are its user's, and whether it is
/// in use. Never 0.
#[derive(Clone, Copy)]
struct Header(u64);

impl Header {
    const USED: u64 = 1 << 63;

    fn used(size: usize, name: usize, count: usize) -> Header {
        Header(Header::USED | (name as u64) << 48 | (count as u64 & 0xff_ffff) << 24 | size as u64 & 0xff_ffff)
    }

    fn free(size: usize) -> Header {
        Header(size as u64 & 0xff_ffff)
    }

    fn of(word: u64) -> Header {
        Header(word)
    }

    fn size(self) -> usize {
        (self.0 & 0xff_ffff) as usize
    }

    /// The length of the name and the number of cells; `None`: nobody uses it.
    fn content(self) -> Option<(usize, usize)> {
        let content = || ((self.0 >> 48 & 0x7fff) as usize, (self.0 >> 24 & 0xff_ffff) as usize);
        (self.0 & Header::USED != 0).then(content)
    }
}

/// Reads all cells of a file of [`CellMemory`]: their names, and what they have counted. Names may be there more than once.
///
/// # Errors
/// The system's, or `InvalidData` for what is no such file.
pub fn read(file: OwnedFd) -> io::Result<Vec<(String, Vec<u64>)>> {
    let file = File::from(file);
    let bytes = file.metadata()?.len();
    if bytes > FILE_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let (mut records, mut at, mut chunk) = (Vec::new(), 0, vec![0; CHUNK_BYTES]);
    while at < bytes {
        // A record that is larger than a chunk is read with as many of them as it has.
        let mut word = [0; CELL];
        file.read_exact_at(&mut word, at)?;
        let first = Header::of(u64::from_ne_bytes(word)).size() * CELL;
        chunk.resize(first.next_multiple_of(CHUNK_BYTES).max(CHUNK_BYTES), 0);
        file.read_exact_at(&mut chunk, at)?;
        at += chunk.len() as u64;
        read_chunk(&chunk, &mut records).ok_or(io::ErrorKind::InvalidData)?;
    }
    Ok(records)
}

/// Adds the records of a chunk; `None` for what is none.
fn read_chunk(mut chunk: &[u8], records: &mut Vec<(String, Vec<u64>)>) -> Option<()> {
    while let Some((word, _)) = chunk.split_first_chunk::<CELL>() {
        let header = Header::of(u64::from_ne_bytes(*word));
        if header.size() == 0 {
            break;
        }
        let (record, rest) = chunk.split_at_checked(header.size() * CELL)?;
        chunk = rest;
        if let Some((name, count)) = header.content() {
            let before = (1 + name.div_ceil(CELL)).next_multiple_of(LINE_CELLS);
            let name = String::from_utf8_lossy(record.get(CELL..CELL + name)?).into_owned();
            let cells = record.get(before * CELL..(before + count) * CELL)?;
            let cells = cells.as_chunks::<CELL>().0.iter().map(|cell| u64::from_ne_bytes(*cell));
            records.push((name, cells.collect()));
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn content(memory: &CellMemory) -> Vec<(String, Vec<u64>)> {
        let mut records = read(memory.file().expect("it is shared").try_clone_to_owned().unwrap()).unwrap();
        records.sort();
        records
    }

    fn record(name: &str, cells: &[u64]) -> (String, Vec<u64>) {
        (name.into(), cells.to_vec())
    }

    #[test]
    fn what_was_counted_is_found_by_name() {
        let memory = Arc::new(CellMemory::shared().unwrap());
        assert_eq!(content(&memory), []);
        let (one, other, none) =
            (memory.take("web", 3), memory.take("a longer name, of two words", 1), memory.take("", 0));
        one[0].store(7, Ordering::Relaxed);
        one[2].store(u64::MAX, Ordering::Relaxed);
        other[0].fetch_add(1, Ordering::Relaxed);
        assert_eq!((one.as_ptr().addr() % (LINE_CELLS * CELL), one.len(), none.len()), (0, 3, 0));
        let expect = [record("", &[]), record("a longer name, of two words", &[1]), record("web", &[7, 0, u64::MAX])];
        assert_eq!(content(&memory), expect);
    }

    #[test]
    fn what_is_given_back_is_used_again_and_is_zero() {
        let memory = Arc::new(CellMemory::shared().unwrap());
        let one = memory.take("one", 5);
        one.iter().for_each(|cell| cell.store(9, Ordering::Relaxed));
        let place = one.as_ptr();
        drop(one);
        assert_eq!(content(&memory), []);
        let two = memory.take("two", 4);
        assert_eq!((two.as_ptr(), content(&memory)), (place, vec![record("two", &[0; 4])]));
    }

    #[test]
    fn a_memory_grows_by_chunks_and_by_records_that_are_larger() {
        for memory in [CellMemory::shared().unwrap(), CellMemory::private()] {
            let memory = Arc::new(memory);
            let large = CHUNK_BYTES / CELL * 2;
            let sizes = [100, large, 1, 0, large + 1, 7].into_iter().chain((0..2000).map(|number| number % 50));
            let taken: Vec<(String, Cells)> = sizes
                .enumerate()
                .map(|(number, size)| (format!("name {number}"), memory.take(&format!("name {number}"), size)))
                .collect();
            for (number, (_, cells)) in taken.iter().enumerate() {
                cells.iter().for_each(|cell| cell.store(number as u64 + 1, Ordering::Relaxed));
            }
            for (number, (_, cells)) in taken.iter().enumerate() {
                assert!(cells.iter().all(|cell| cell.load(Ordering::Relaxed) == number as u64 + 1), "{number}");
            }
            if memory.file().is_some() {
                let mut expect: Vec<_> = taken
                    .iter()
                    .map(|(name, cells)| {
                        (name.clone(), cells.iter().map(|cell| cell.load(Ordering::Relaxed)).collect())
                    })
                    .collect();
                expect.sort();
                assert_eq!(content(&memory), expect);
            }
        }
    }

    #[test]
    fn what_is_no_such_file_is_refused_or_empty() {
        let file = |content: &[u8]| {
            let file = File::from(memfd_create("test", MFdFlags::empty()).unwrap());
            file.write_all_at(content, 0).unwrap();
            read(OwnedFd::from(file))
        };
        assert!(file(b"short").is_err());
        assert!(file(&[0xff; CHUNK_BYTES]).is_err());
        assert_eq!(file(&[0; CHUNK_BYTES]).unwrap(), []);
        // A name beyond its record.
        let mut wrong = vec![0; CHUNK_BYTES];
        wrong[..CELL].copy_from_slice(&Header::used(16, 4000, 1).0.to_ne_bytes());
        assert!(file(&wrong).is_err());
        assert!(read(Command::new("true").stdout(Stdio::piped()).spawn().unwrap().stdout.unwrap().into()).is_ok());
    }
}
