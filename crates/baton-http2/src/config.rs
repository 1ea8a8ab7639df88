//! What we want of a connection, and what a peer may cost.

use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// Settings and limits of our side of a connection.
#[derive(Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
pub struct Config {
    /// What we tell the peer. `max_concurrent_streams` is how many streams it may have open.
    pub settings: Settings,
    /// Bytes of bodies that may be on their way to us, or wait for their consumers, on all streams together: from 65,535 to 2^31-1.
    pub connection_window: u32,
    /// Bytes of the names and values of a head, each with the 32 bytes of overhead by which SETTINGS_MAX_HEADER_LIST_SIZE counts. A
    /// larger one is [`Event::HeadTooLarge`](crate::Event::HeadTooLarge).
    pub head_bytes_max: u32,
    /// Fields of a head.
    pub head_fields_max: u32,
    /// Bytes of an encoded field block; a longer one ends the connection.
    pub block_bytes_max: u32,
    /// CONTINUATION frames of one field block.
    pub continuations_max: u32,
    /// Streams that the peer may reset, or provoke us to reset, before they have ended. Each stream that ends as it should gives one back.
    pub resets_max: u32,
    /// Frames that carry nothing: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, unknown ones. Each frame that carries something, in
    /// either direction, gives some back.
    pub control_frames_max: u32,
    /// Oddities of all kinds, over the life of the connection, as HAProxy's `tune.h2.fe.glitches-threshold` counts them. 0: no limit.
    pub glitches_max: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            settings: Settings {
                enable_push: false,
                max_concurrent_streams: 100,
                max_header_list_size: 64 << 10,
                ..Settings::default()
            },
            connection_window: 1 << 20,
            head_bytes_max: 64 << 10,
            head_fields_max: 128,
            block_bytes_max: 64 << 10,
            continuations_max: 32,
            resets_max: 500,
            control_frames_max: 2000,
            glitches_max: 0,
        }
    }
}
