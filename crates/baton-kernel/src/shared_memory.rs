//! Memory that several processes read and write at the same time, and that outlives each of them as long as another one holds its file.
//!
//! A [`SharedMemory`] is a memory file that is mapped as a whole. It is sparse: a page takes memory from the time it is committed
//! ([`SharedMemory::commit`]) or first used. It begins with locks, and the rest are cells: atomic numbers of 64 bits, which any process may
//! change at any time. A lock whose holder died is acquired by the next one, who is told so ([`SharedLock::holder_died`]).

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of a cell.
const CELL: usize = size_of::<AtomicU64>();
/// Bytes of a lock: a cache line of its own.
const LOCK_BYTES: usize = 64;
/// Bytes of a page.
const PAGE: usize = 4096;
/// The most bytes of a file.
const BYTES_MAX: usize = 1 << 44;

const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= LOCK_BYTES && align_of::<libc::pthread_mutex_t>() <= CELL);

/// A mapped memory file.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    at: NonNull<u8>,
    bytes: usize,
    locks: usize,
}

// SAFETY: it leads to atomics and to locks for several processes, in a mapping that lives as long as this.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

/// A lock that is held, until this is dropped. It belongs to its thread.
#[derive(Debug)]
pub struct SharedLock<'a> {
    lock: &'a UnsafeCell<libc::pthread_mutex_t>,
    died: bool,
}

impl SharedMemory {
    /// New memory with `locks` locks and at least `cells` cells, which are zero.
    ///
    /// # Errors
    /// The system's: no descriptor, no address space or no memory is left.
    pub fn create(name: &str, locks: usize, cells: usize) -> io::Result<SharedMemory> {
        let bytes = cells.checked_mul(CELL).and_then(|bytes| bytes.checked_add(lock_bytes(locks)));
        let bytes =
            bytes.filter(|bytes| *bytes <= BYTES_MAX).ok_or(io::ErrorKind::FileTooLarge)?.next_multiple_of(PAGE);
        let file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
        file.set_len(bytes as u64)?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(sealed()))?;
        fallocate(&file, FallocateFlags::empty(), 0, lock_bytes(locks) as i64)?;
        let memory = SharedMemory::map(file, locks, bytes)?;
        for index in 0..locks {
            create_lock(memory.lock_at(index))?;
        }
        Ok(memory)
    }

    /// The memory of a file that [`SharedMemory::create`] made, with as many locks, in this process or in another one.
    ///
    /// # Errors
    /// The system's; `InvalidData`: it is no such file.
    pub fn open(file: OwnedFd, locks: usize) -> io::Result<SharedMemory> {
        let file = File::from(file);
        // A file that can get shorter would end whoever reads it.
        let seals = fcntl(&file, FcntlArg::F_GET_SEALS).map_err(|_| io::ErrorKind::InvalidData)?;
        let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let is_ours = SealFlag::from_bits_truncate(seals).contains(sealed())
            && bytes <= BYTES_MAX
            && bytes > lock_bytes(locks)
            && bytes.is_multiple_of(PAGE);
        if !is_ours {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let memory = SharedMemory::map(file, locks, bytes)?;
        match memory.has_locks()? {
            true => Ok(memory),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Whether there is something like a lock at the place of each. What a lock is, is what is not zero in one that nobody has used.
    fn has_locks(&self) -> io::Result<bool> {
        let fresh = Fresh::default();
        create_lock(fresh.lock())?;
        let lock = size_of::<libc::pthread_mutex_t>();
        // SAFETY: both are that many bytes that are initialized. Those in the file are read as atomics: other processes use the lock.
        let bytes = |at: NonNull<u8>| unsafe { slice::from_raw_parts(at.cast::<AtomicU8>().as_ptr(), lock) };
        let expected = bytes(NonNull::from(&fresh).cast());
        Ok((0..self.locks).all(|index| {
            let found = bytes(NonNull::from(self.lock_at(index)).cast());
            let mut pairs = expected.iter().zip(found).map(|(one, other)| (one.load(Relaxed), other.load(Relaxed)));
            pairs.all(|(one, other)| one == 0 || one == other)
        }))
    }

    /// The cells.
    #[inline]
    pub fn cells(&self) -> &[AtomicU64] {
        let locks = lock_bytes(self.locks);
        // SAFETY: the mapping has `bytes` bytes as long as `self`; those behind the locks are only ever used as atomics of this size, in
        // every process, and any content is valid for them. A page begins at a multiple of their alignment.
        unsafe { slice::from_raw_parts(self.at.add(locks).cast().as_ptr(), (self.bytes - locks) / CELL) }
    }

    /// Takes the memory for cells, which is an error here, and not the end of the process that first uses them, where none is left.
    ///
    /// # Errors
    /// The system's.
    pub fn commit(&self, first: usize, count: usize) -> io::Result<()> {
        let from = lock_bytes(self.locks) + first * CELL;
        let bytes = (count * CELL).min(self.bytes.saturating_sub(from));
        Ok(fallocate(&self.file, FallocateFlags::empty(), from as i64, bytes.max(1) as i64)?)
    }

    /// Waits for a lock and holds it. A thread must not ask for a lock that it holds.
    pub fn lock(&self, index: usize) -> SharedLock<'_> {
        assert!(index < self.locks, "there are {} locks", self.locks);
        let lock = self.lock_at(index);
        // SAFETY: `create` initialized a mutex at this place of the file, which is mapped as long as `self`.
        let result = unsafe { libc::pthread_mutex_lock(lock.get()) };
        let died = result == libc::EOWNERDEAD;
        if died {
            // SAFETY: as above, and this thread holds it now.
            unsafe { libc::pthread_mutex_consistent(lock.get()) };
        }
        assert!(died || result == 0, "a lock between processes: error {result}");
        SharedLock { lock, died }
    }

    /// The file, for a process that is to share the memory.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn map(file: File, locks: usize, bytes: usize) -> io::Result<SharedMemory> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE;
        let length = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at a place of the kernel's choice, of a file that is sealed: it never gets shorter.
        let at = unsafe { mmap(None, length, access, flags, &file, 0) }?;
        Ok(SharedMemory { file, at: at.cast(), bytes, locks })
    }

    fn lock_at(&self, index: usize) -> &UnsafeCell<libc::pthread_mutex_t> {
        debug_assert!(index < self.locks);
        // SAFETY: the first bytes of the mapping, which are no cells, have room for `locks` locks, aligned as they want it; a mutex may
        // be changed through a shared reference, hence the `UnsafeCell`.
        unsafe { self.at.add(index * LOCK_BYTES).cast().as_ref() }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and whatever leads into it borrows `self`.
        let _ = unsafe { munmap(self.at.cast(), self.bytes) };
    }
}

impl SharedLock<'_> {
    /// Whether the process or thread that held it last died meanwhile: what it protects may be in the middle of a change.
    pub fn holder_died(&self) -> bool {
        self.died
    }
}

impl Drop for SharedLock<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread holds it: the type is not `Send`, as a reference to an `UnsafeCell` is not.
        unsafe { libc::pthread_mutex_unlock(self.lock.get()) };
    }
}

/// Room for a lock of this process alone, all of whose bytes are zero before.
#[repr(align(8))]
struct Fresh(UnsafeCell<[u8; LOCK_BYTES]>);

impl Default for Fresh {
    fn default() -> Fresh {
        Fresh(UnsafeCell::new([0; LOCK_BYTES]))
    }
}

impl Fresh {
    fn lock(&self) -> &UnsafeCell<libc::pthread_mutex_t> {
        // SAFETY: there is room for one, aligned as it wants it, which may be changed through a shared reference.
        unsafe { NonNull::from(&self.0).cast().as_ref() }
    }
}

fn sealed() -> SealFlag {
    SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL
}

fn lock_bytes(locks: usize) -> usize {
    (locks * LOCK_BYTES).next_multiple_of(PAGE)
}

fn create_lock(lock: &UnsafeCell<libc::pthread_mutex_t>) -> io::Result<()> {
    let mut attributes = MaybeUninit::uninit();
    let check = |result| if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) };
    // SAFETY: the attributes are initialized by the first call and destroyed by the last; nobody else knows the lock yet, whose bytes are
    // zero, and it stays at its place of the file.
    unsafe {
        check(libc::pthread_mutexattr_init(attributes.as_mut_ptr()))?;
        let made = check(libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED))
            .and_then(|()| {
                check(libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST))
            })
            .and_then(|()| check(libc::pthread_mutex_init(lock.get(), attributes.as_ptr())));
        libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
        made
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::thread;

    use nix::sys::wait::waitpid;
    use nix::unistd::{ForkResult, fork};

    use super::*;

    fn again(memory: &SharedMemory, locks: usize) -> SharedMemory {
        SharedMemory::open(memory.file().try_clone_to_owned().unwrap(), locks).unwrap()
    }

    #[test]
    fn what_one_mapping_writes_another_reads() {
        let one = SharedMemory::create("test", 3, 100_000).unwrap();
        let other = again(&one, 3);
        assert!(one.cells().len() >= 100_000 && one.cells().len() == other.cells().len());
        one.cells()[99_999].store(7, Ordering::Relaxed);
        assert_eq!(other.cells()[99_999].load(Ordering::Relaxed), 7);
        one.commit(5000, 10_000).unwrap();
        assert!(one.cells()[5000..15_000].iter().all(|cell| cell.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn memory_follows_use() {
        let memory = SharedMemory::create("test", 1, 1 << 30).unwrap();
        memory.cells()[1 << 29].store(7, Ordering::Relaxed);
        memory.commit(0, 1000).unwrap();
        let pages = std::os::unix::fs::MetadataExt::blocks(&memory.file.metadata().unwrap()) * 512 / PAGE as u64;
        assert!((3..=6).contains(&pages), "{pages}");
    }

    #[test]
    fn a_lock_is_held_by_one() {
        let one = SharedMemory::create("test", 2, 1).unwrap();
        let other = again(&one, 2);
        let count = |memory: &SharedMemory| {
            for _ in 0..10_000 {
                let held = memory.lock(1);
                assert!(!held.holder_died());
                let cell = &memory.cells()[0];
                cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
        };
        thread::scope(|threads| {
            threads.spawn(|| count(&one));
            count(&other);
        });
        assert_eq!(one.cells()[0].load(Ordering::Relaxed), 20_000);
    }

    #[test]
    fn a_lock_whose_holder_died_is_acquired_by_the_next() {
        let memory = SharedMemory::create("test", 1, 1).unwrap();
        // SAFETY: the child takes a lock and ends, which both may be done after a fork.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                std::mem::forget(memory.lock(0));
                // SAFETY: as above.
                unsafe { libc::_exit(0) }
            }
            ForkResult::Parent { child } => {
                waitpid(child, None).unwrap();
            }
        }
        assert!(memory.lock(0).holder_died());
        assert!(!memory.lock(0).holder_died());
    }

    #[test]
    fn other_files_are_refused() {
        let refused = |file: File| SharedMemory::open(file.into(), 1).unwrap_err().kind() == io::ErrorKind::InvalidData;
        assert!(refused(File::open("/dev/null").unwrap()));
        let unsealed = File::from(memfd_create("test", MFdFlags::MFD_ALLOW_SEALING).unwrap());
        unsealed.set_len(1 << 20).unwrap();
        assert!(refused(unsealed));
        let damaged = SharedMemory::create("test", 3, 10).unwrap();
        // SAFETY: nobody uses this lock.
        unsafe { damaged.at.add(2 * LOCK_BYTES).write_bytes(0, LOCK_BYTES) };
        let open = |locks| SharedMemory::open(damaged.file().try_clone_to_owned().unwrap(), locks);
        assert_eq!(open(3).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let held = damaged.lock(0);
        assert!(open(2).is_ok(), "locks that are used are locks");
        drop(held);
    }
}
