//! Keywords of `global` about how much there may be: connections, threads, buffers, open files.

use super::global::{again, duration};
use crate::lower::{Call, GlobalDraft};

pub(super) fn maxconn(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let given = global.model.maxconn.is_some();
    if let Some(value) = call.number(0, i64::from(i32::MAX))
        && !again(call, given)
    {
        // 0 asks for the automatic value.
        global.model.maxconn = u32::try_from(value).ok().filter(|value| *value > 0);
    }
}

pub(super) fn maxconnrate(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let given = global.model.maxconnrate.is_some();
    if let Some(value) = call.number(0, i64::from(i32::MAX))
        && !again(call, given)
    {
        // 0 is no limit.
        global.model.maxconnrate = u32::try_from(value).ok().filter(|value| *value > 0);
    }
}

pub(super) fn maxsessrate(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let given = global.model.maxsessrate.is_some();
    if let Some(value) = call.number(0, i64::from(i32::MAX))
        && !again(call, given)
    {
        // 0 is no limit.
        global.model.maxsessrate = u32::try_from(value).ok().filter(|value| *value > 0);
    }
}

pub(super) fn maxsslconn(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let given = global.model.maxsslconn.is_some();
    if let Some(value) = call.number(0, i64::from(i32::MAX))
        && !again(call, given)
    {
        // 0 is no limit.
        global.model.maxsslconn = u32::try_from(value).ok().filter(|value| *value > 0);
    }
}

pub(super) fn maxsslrate(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let given = global.model.maxsslrate.is_some();
    if let Some(value) = call.number(0, i64::from(i32::MAX))
        && !again(call, given)
    {
        // 0 is no limit.
        global.model.maxsslrate = u32::try_from(value).ok().filter(|value| *value > 0);
    }
}

pub(super) fn maxpipes(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let given = global.model.maxpipes.is_some();
    if let Some(value) = call.number(0, i64::from(i32::MAX))
        && !again(call, given)
    {
        global.model.maxpipes = u32::try_from(value).ok();
    }
}

pub(super) fn nosplice(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    global.model.nosplice |= call.at_most(0);
}

pub(super) fn nbthread(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let text = call.arg(0);
    match text.parse::<i64>() {
        Ok(value @ 1..=64) => {
            if call.at_most(1) {
                global.model.nbthread = u32::try_from(value).ok();
            }
        }
        Ok(value) => {
            call.error(call.first, "out-of-range", format!("'nbthread' value must be between 1 and 64 (was {value})"));
        }
        Err(_) => {
            let message = format!("'nbthread' passed a missing or unparsable integer value in '{text}'");
            call.error(call.first, "bad-number", message);
        }
    }
}

pub(super) fn spread_checks(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let given = global.model.spread_checks != 0;
    if let Some(value) = call.number(0, 50)
        && !again(call, given)
    {
        global.model.spread_checks = value as u32;
    }
}

pub(super) fn bufsize(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(1024, 64 << 20) {
        global.model.bufsize = value as usize;
    }
}

pub(super) fn maxrewrite(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, 64 << 20) {
        global.model.maxrewrite = value as usize;
    }
}

pub(super) fn maxhdr(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(1, 32767) {
        global.model.maxhdr = value as usize;
    }
}

pub(super) fn cookielen(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, i64::from(i32::MAX)) {
        // 0 is the default.
        global.model.captured_cookie_len = if value == 0 { 63 } else { value as usize };
    }
}

pub(super) fn logurilen(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(1, i64::from(i32::MAX)) {
        global.model.logged_line_len = value as usize;
    }
}

pub(super) fn maxaccept(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(-1, i64::from(i32::MAX)) {
        // -1 is no limit, 0 the default.
        global.model.maxaccept = Some(u32::try_from(value).unwrap_or(u32::MAX)).filter(|value| *value > 0);
    }
}

pub(super) fn handover(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.choose(call.first, call.name, &[("on", true), ("off", false)])
        && call.at_most(1)
    {
        global.model.keeps_connections = !value;
    }
}

pub(super) fn handover_patience(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(patience) = duration(call) {
        global.model.handover_patience = patience;
    }
}

pub(super) fn stick_counters(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, 100) {
        global.model.stick_counters = value as u8;
    }
}

pub(super) fn ulimit_n(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, i64::from(i32::MAX)) {
        global.model.ulimit_n = u64::try_from(value).ok().filter(|value| *value > 0);
    }
}
