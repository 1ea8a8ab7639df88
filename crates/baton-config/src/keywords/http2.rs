//! Keywords of `global` about HTTP/2.

use crate::lower::{Call, GlobalDraft};

/// The largest window (RFC 9113 6.9.1), and number of streams.
const MOST: i64 = i32::MAX as i64;

pub(super) fn glitches_threshold(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, MOST) {
        global.model.http2.glitches_max = value as u32;
    }
}

pub(super) fn header_table_size(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(4096, 65_536) {
        global.model.http2.header_table_size = value as u32;
    }
}

pub(super) fn initial_window_size(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, MOST) {
        global.model.http2.initial_window_size = value as u32;
    }
}

pub(super) fn max_concurrent_streams(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, MOST) {
        global.model.http2.max_concurrent_streams = value as u32;
    }
}

pub(super) fn server_glitches_threshold(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, MOST) {
        global.model.http2.server_glitches_max = value as u32;
    }
}

pub(super) fn server_initial_window_size(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, MOST) {
        global.model.http2.server_initial_window_size = Some(value as u32);
    }
}

pub(super) fn server_max_concurrent_streams(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, MOST) {
        global.model.http2.server_max_concurrent_streams = Some(value as u32);
    }
}

pub(super) fn max_frame_size(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(16_384, 16_777_215) {
        global.model.http2.max_frame_size = Some(value as u32);
    }
}

pub(super) fn no_websockets(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    global.model.http2.no_websockets |= call.at_most(0);
}
