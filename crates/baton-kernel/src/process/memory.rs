//! Memory that was freed, and the allocator that keeps it.

use std::ffi::{CString, c_uint};
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

/// Gives the system back what the calling thread freed in jemalloc's arena and has not used again for some seconds. jemalloc does
/// so itself while a thread goes on allocating, but not for a thread that has nothing to do after a burst.
pub fn decay() {
    own_arena(Control::Decay);
}

/// Gives the system back all that the calling thread freed in jemalloc's arena.
pub fn purge() {
    own_arena(Control::Purge);
}

/// Controls of an arena that take and give no value and touch no memory in use (jemalloc(3)); there are others.
enum Control {
    Decay,
    Purge,
}

fn own_arena(control: Control) {
    let control = match control {
        Control::Decay => "decay",
        Control::Purge => "purge",
    };
    let mut arena: c_uint = 0;
    let mut len = size_of::<c_uint>();
    // SAFETY: the name is a C string; this control writes an unsigned of the size that `len` says to where the first pointer
    // points, which is `arena`, and takes no value, so that the last pointer may be null; any thread may call it at any time.
    let read = unsafe {
        tikv_jemalloc_sys::mallctl(c"thread.arena".as_ptr(), (&raw mut arena).cast(), &raw mut len, null_mut(), 0)
    };
    let Ok(name) = CString::new(format!("arena.{arena}.{control}")) else { return };
    if read == 0 {
        // SAFETY: the name is a C string, and a `Control` takes and gives no value, so that all pointers may be null; any
        // thread may call it at any time, and it touches no memory in use.
        unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
    }
}
