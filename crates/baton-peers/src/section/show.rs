//! A section as operators see it (`show peers`), in the lines that HAProxy prints.

use std::fmt::Write;

use baton_tables::Now;

use super::{LastStatus, Peer, Section};
use crate::dictionary::TEXTS_MAX;
use crate::link::{Lesson, Link, Phase};
use crate::resync::Resync;

/// What is shown.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// When the section began, as a date.
    pub date: &'a str,
    /// Texts of dictionaries, too.
    pub with_texts: bool,
    /// The place of the section among all, which makes the names of its objects unique.
    pub place: usize,
}

impl Section {
    /// Its lines, and those of its peers and their tables.
    pub fn show(&self, shown: Shown<'_>, now: Now) -> String {
        let now = now.as_millis();
        let mut out = String::new();
        let timeout = match self.resync.due() {
            Some(until) => left(until, now),
            None => "<PAST>".into(),
        };
        let state = match self.resync {
            Resync::Local { .. } => 0x1,
            Resync::Remote { .. } => 0x2,
            Resync::Done => 0x11,
        };
        let name = &self.settings.name;
        let _ = writeln!(
            out,
            "{}: [{}] id={name} disabled=0 flags={state:#x} resync_timeout={timeout} task_calls={}",
            object(shown.place, 0, 0),
            shown.date,
            self.ticks
        );
        // As HAProxy lists them: the last line of the section first.
        for place in (0..self.peers.len()).rev() {
            self.show_peer(&mut out, place, shown, now);
        }
        out
    }

    fn show_peer(&self, out: &mut String, place: usize, shown: Shown<'_>, now: u64) {
        let (peer, settings) = (&self.peers[place], &self.settings.peers[place]);
        let link = peer.link.and_then(|id| self.links.get(&id));
        let Peer { counted, .. } = peer;
        let _ = writeln!(
            out,
            "  {}: id={}({},{}) addr={} last_status={} last_hdshk={}",
            object(shown.place, place + 1, 0),
            settings.name,
            if place == self.local { "local" } else { "remote" },
            if link.is_some() { "active" } else { "inactive" },
            settings.address,
            word(counted.status),
            since(counted.handshake, now),
        );
        let is_open = link.is_some_and(|link| link.phase == Phase::Open);
        let reconnect = match place == self.local {
            true => "<NEVER>".into(),
            false => left(peer.redial_at, now),
        };
        let heartbeat = match link.filter(|_| is_open) {
            Some(link) => left(link.said + super::HEARTBEAT_MS, now),
            None => "<NEVER>".into(),
        };
        let _ = writeln!(
            out,
            "        reconnect={reconnect} heartbeat={heartbeat} confirm={} tx_hbt={} rx_hbt={} no_hbt={} new_conn={} proto_err={} coll={}",
            link.map_or(0, |link| u8::from(matches!(link.session.lesson, Lesson::Sent { .. }))),
            counted.heartbeats_sent,
            counted.heartbeats_received,
            counted.silences,
            counted.connections,
            counted.violations,
            counted.collisions,
        );
        let flags = u32::from(peer.is_partial);
        let _ = match link {
            None => writeln!(out, "        flags={flags:#x}"),
            Some(link) => {
                let (number, state) = match link.phase {
                    Phase::Connecting => (6, "TAR"),
                    Phase::AwaitHello | Phase::AwaitStatus => (6, "CON"),
                    Phase::Open => (7, "EST"),
                    Phase::Ending => (8, "CLO"),
                };
                let link = peer.link.map_or(0, |link| link.0);
                let calls = self.ticks;
                writeln!(
                    out,
                    "        flags={flags:#x} appctx:{link:#x} st0={number} st1=0 task_calls={calls} state={state}"
                )
            }
        };
        if let Some(link) = link.filter(|_| is_open) {
            let there = link.session.current_there.and_then(|id| link.session.defined_there.get(&id));
            for (word, table) in
                [("remote_table", there.map(|(table, _)| *table)), ("last_local_table", link.session.current_here)]
            {
                let Some(table) = table else { continue };
                let _ = writeln!(
                    out,
                    "        {word}:{} id={} local_id={} remote_id={}",
                    object(shown.place, place + 1, table + 1),
                    self.tables[table].table.name(),
                    table + 1,
                    link.session.received[table].id,
                );
            }
        }
        if !self.tables.is_empty() {
            let _ = writeln!(out, "        shared tables:");
        }
        for table in (0..self.tables.len()).rev() {
            self.show_table(out, (place, table), link, shown);
        }
    }

    fn show_table(&self, out: &mut String, (place, table): (usize, usize), link: Option<&Link>, shown: Shown<'_>) {
        let (progress, shared) = (self.peers[place].progress[table], &self.tables[table]);
        let received = link.map(|link| &link.session.received[table]);
        let (remote, bits, last) = received.map_or((0, 0, 0), |received| (received.id, received.bits, received.last));
        let object = object(shown.place, place + 1, table + 1);
        let _ = writeln!(
            out,
            "          {object} local_id={} remote_id={remote} flags=0x0 remote_data={bits:#x}",
            table + 1
        );
        let _ = writeln!(
            out,
            "              last_acked={} last_pushed={} last_get={last} teaching_origin=0 update=0",
            progress.acknowledged as u32, progress.pushed as u32,
        );
        let number = shared.log.last() as u32;
        let _ = writeln!(
            out,
            "              table:{object} id={} update={number} localupdate={number} commitupdate={number} refcnt=1",
            shared.table.name(),
        );
        if !shown.with_texts {
            let _ = writeln!(out, "        Dictionary cache not dumped (use \"show peers dict\")");
            return;
        }
        let _ = writeln!(out, "        TX dictionary cache:");
        if let Some(link) = link {
            for (number, text) in link.session.sent_texts.iter() {
                let _ = writeln!(out, "          {number:3} -> {text}");
            }
        }
        let _ = writeln!(out, "        RX dictionary cache:");
        let mut texts = vec!["-"; TEXTS_MAX];
        if let Some(link) = link {
            link.session.received_texts.iter().for_each(|(number, text)| texts[number - 1] = text);
        }
        for (row, four) in texts.chunks(4).enumerate() {
            let cells: Vec<_> =
                four.iter().enumerate().map(|(at, text)| format!("{:3} -> {text}", 4 * row + at)).collect();
            let _ = writeln!(out, "          {}", cells.join("  "));
        }
    }
}

/// What stands where HAProxy prints an address of its memory.
fn object(section: usize, peer: usize, table: usize) -> String {
    format!("{:#x}", ((section + 1) << 24) | (peer << 12) | table)
}

fn word(status: Option<LastStatus>) -> &'static str {
    match status {
        None => "NONE",
        Some(LastStatus::Connecting) => "CONN",
        Some(LastStatus::Established | LastStatus::Lost) => "ESTA",
        Some(LastStatus::Code(code)) => match code {
            300 => "RETR",
            501 => "PROT",
            502 => "VERS",
            503 => "NAME",
            504 => "UNKN",
            _ => "NONE",
        },
        Some(LastStatus::NoStatus) => "HSHK",
    }
}

fn since(moment: Option<u64>, now: u64) -> String {
    moment.map_or_else(|| "<NEVER>".into(), |moment| format!("{}s", now.saturating_sub(moment) / 1000))
}

fn left(until: u64, now: u64) -> String {
    if until <= now { "<PAST>".into() } else { format!("{}s", (until - now) / 1000) }
}
