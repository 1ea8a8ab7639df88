//! `-W`, `-Ws`: the master holds the listening sockets and supervises one worker.
//!
//! [`supervisor`] decides, without I/O. The master carries no traffic and has one thread; the worker is a process of its
//! own, started from the same binary, which changes its configuration in place as every Baton does.

pub mod supervisor;

pub use supervisor::Supervisor;
