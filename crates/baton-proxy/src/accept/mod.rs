//! Accepting connections.
