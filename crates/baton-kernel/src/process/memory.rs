//! Memory that was freed, and the allocator that keeps it.

/// Gives the system back what was freed but lies between memory in use; the C library does so by itself only at the end of
/// each of its areas, and every thread has one. Walks all of them, which takes some milliseconds in a process of a hundred
/// megabytes, and holds up allocations in each meanwhile. Nothing with C libraries other than glibc.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: any thread may call it at any time, and it touches no memory in use (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}
