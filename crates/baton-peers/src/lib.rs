//! The peers protocol.
pub mod definition;
pub mod dictionary;
pub mod frame;
pub mod hello;
pub mod update;
pub mod varint;
