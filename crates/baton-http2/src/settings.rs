//! SETTINGS (RFC 9113 6.5.2, RFC 8441 3).

use serde::{Deserialize, Serialize};

use crate::error::Violation;
use crate::frame::{FRAME_SIZE_MAX, FRAME_SIZE_MIN, MAX_31};

/// A setting's identifier.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
#[repr(u16)]
pub enum Setting {
    /// Bytes of the table with which the peer decodes.
    HeaderTableSize = 0x1,
    /// Whether the server may push.
    EnablePush = 0x2,
    /// Streams that the peer of the sender may have open.
    MaxConcurrentStreams = 0x3,
    /// The window of a new stream.
    InitialWindowSize = 0x4,
    /// The longest frame that the sender takes.
    MaxFrameSize = 0x5,
    /// Advice: the largest field section that the sender takes.
    MaxHeaderListSize = 0x6,
    /// Whether a server takes extended CONNECT (RFC 8441).
    EnableConnectProtocol = 0x8,
}

/// The value of each setting of one side. Before its SETTINGS arrive, the initial values of the RFC apply.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// SETTINGS_HEADER_TABLE_SIZE
    pub header_table_size: u32,
    /// SETTINGS_ENABLE_PUSH
    pub enable_push: bool,
    /// SETTINGS_MAX_CONCURRENT_STREAMS; `u32::MAX`: no limit.
    pub max_concurrent_streams: u32,
    /// SETTINGS_INITIAL_WINDOW_SIZE
    pub initial_window_size: u32,
    /// SETTINGS_MAX_FRAME_SIZE
    pub max_frame_size: u32,
    /// SETTINGS_MAX_HEADER_LIST_SIZE; `u32::MAX`: no limit.
    pub max_header_list_size: u32,
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL
    pub enable_connect_protocol: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            header_table_size: 4096,
            enable_push: true,
            max_concurrent_streams: u32::MAX,
            initial_window_size: 65_535,
            max_frame_size: FRAME_SIZE_MIN,
            max_header_list_size: u32::MAX,
            enable_connect_protocol: false,
        }
    }
}

impl Settings {
    /// Takes one setting of the peer's. Unknown ones are ignored (RFC 9113 6.5.2). `from_server`: a server sent it.
    pub fn apply(&mut self, id: u16, value: u32, from_server: bool) -> Result<(), Violation> {
        match id {
            0x1 => self.header_table_size = value,
            0x2 => match value {
                0 => self.enable_push = false,
                1 if !from_server => self.enable_push = true,
                _ => return Err(Violation::SettingsValue),
            },
            0x3 => self.max_concurrent_streams = value,
            0x4 if value > MAX_31 => return Err(Violation::SettingsWindow),
            0x4 => self.initial_window_size = value,
            0x5 if !(FRAME_SIZE_MIN..=FRAME_SIZE_MAX).contains(&value) => return Err(Violation::SettingsValue),
            0x5 => self.max_frame_size = value,
            0x6 => self.max_header_list_size = value,
            // Once 1, it must not be 0 again (RFC 8441 3).
            0x8 => match (value, self.enable_connect_protocol) {
                (0, false) => {}
                (1, _) => self.enable_connect_protocol = true,
                _ => return Err(Violation::SettingsValue),
            },
            _ => {}
        }
        Ok(())
    }

    /// Those that differ from the initial values, as they are sent by a client or a server.
    pub(crate) fn changed(&self, by_client: bool) -> impl Iterator<Item = (Setting, u32)> + use<> {
        let (ours, initial) = (*self, Settings::default());
        let rows = [
            (Setting::HeaderTableSize, ours.header_table_size, initial.header_table_size),
            // Only a client has something to say about it.
            (Setting::EnablePush, u32::from(ours.enable_push || !by_client), 1),
            (Setting::MaxConcurrentStreams, ours.max_concurrent_streams, initial.max_concurrent_streams),
            (Setting::InitialWindowSize, ours.initial_window_size, initial.initial_window_size),
            (Setting::MaxFrameSize, ours.max_frame_size, initial.max_frame_size),
            (Setting::MaxHeaderListSize, ours.max_header_list_size, initial.max_header_list_size),
            (Setting::EnableConnectProtocol, u32::from(ours.enable_connect_protocol && !by_client), 0),
        ];
        rows.into_iter().filter(|(_, value, initial)| value != initial).map(|(setting, value, _)| (setting, value))
    }
}
