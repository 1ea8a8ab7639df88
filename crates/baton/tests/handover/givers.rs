//! The old process fails.
