//! The operating system: sockets and their options, descriptors, users, signals.
