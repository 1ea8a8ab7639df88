//! Memory that was freed, and the allocator that keeps it.

use std::ptr::null_mut;

/// Gives the system back what was freed in all of jemalloc's arenas. Left alone an arena does so in the course of seconds, but
/// only while its threads go on allocating; and every core has one. Holds up allocations in each for the time that takes.
/// Nothing in a program that allocates with another library.
pub fn give_back() {
    // `arena.4096.purge`: 4096 (MALLCTL_ARENAS_ALL) stands for all of them (jemalloc(3)).
    // SAFETY: the name is a C string, and this control takes and gives no value, so that all pointers may be null; any thread
    // may call it at any time, and it touches no memory in use.
    unsafe {
        tikv_jemalloc_sys::mallctl(c"arena.4096.purge".as_ptr(), null_mut(), null_mut(), null_mut(), 0);
    }
}
