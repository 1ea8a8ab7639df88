//! Sections of lines to a model: looks each keyword up in the tables, applies it to a draft, and finishes the drafts when all
//! lines are read.

mod direct;
mod draft;
mod judge;
mod line;
mod log;
mod named;
mod rule_files;
mod stick;
mod tables;
mod track;

pub(crate) use direct::MAX_SERVICES;
pub(crate) use draft::{
    Draft, Drafts, ErrorSetting, GlobalDraft, InitAddr, Kind, LogEntry, ServerDraft, is_name, server_words,
};
pub(crate) use judge::{judge_server, late};
pub(crate) use line::{Call, Context, DefaultPath, MAX_OBJECTS, Prefix, Subject};
pub(crate) use log::{FORMATS as LOG_FORMATS, log_target};
pub(crate) use rule_files::RuleFiles;
pub(crate) use tables::TableIndex;

use std::sync::Arc;

use baton_model::{Global, Model};
use baton_rules::{BufferLimits, nearest};

use crate::diagnostic::Severity;
use crate::environment::LINES_PER_PAUSE;
use crate::keywords::{self, Apply, DEFAULTS, Keyword, KeywordMatch, NAMED, SECTIONS, STRICT, Status};
use crate::syntax::{Line, Section, Syntax};

/// Reads all sections. The model is whole even when alerts were reported; the caller then drops it.
pub(crate) fn lower(syntax: &Syntax, context: &mut Context<'_>) -> Model {
    let mut global = GlobalDraft::default();
    // A line `ssl-server-verify` counts more, as in HAProxy.
    global.model.tls.server_verify_none = context.options.no_server_verify;
    let mut drafts = Drafts::for_sections(syntax.sections.len());
    for section in &syntax.sections {
        if context.report.is_full() {
            break;
        }
        match section.head.word(0) {
            "global" => {
                context.limit_arguments(&section.head, 0);
                for line in &section.lines {
                    global_line(&mut global, line, context);
                }
                let Global { bufsize, maxrewrite, stick_counters, .. } = global.model;
                context.stick_counters = stick_counters;
                context.buffer = BufferLimits { bytes: bufsize, reserve: maxrewrite };
            }
            "defaults" | "frontend" | "backend" | "listen" => {
                if let Some(mut draft) = draft::begin(section, &mut drafts, context) {
                    for line in &section.lines {
                        if line.number.is_multiple_of(LINES_PER_PAUSE) {
                            context.env.pause();
                        }
                        proxy_line(&mut draft, line, context);
                    }
                    drafts.push(draft);
                }
            }
            "crt-store" => keywords::tls::crt_store(section, context),
            "resolvers" => keywords::resolvers::section(section, context),
            "ring" => keywords::ring::section(section, context),
            "mailers" => keywords::mail::section(section, context),
            "peers" => keywords::peers::section(section, context),
            "http-errors" => keywords::failure::http_errors(section, context),
            "userlist" => keywords::userlist::section(section, context),
            _ => refuse_section(section, context),
        }
    }
    judge::finish(global, drafts.into_proxies(), context)
}

fn refuse_section(section: &Section, context: &mut Context<'_>) {
    let name = section.head.word(0);
    if SECTIONS.iter().any(|kind| kind.name == name) {
        let message = format!("section '{name}' is not supported yet");
        context.report.add(section.head.diagnostic(Severity::Alert, "not-yet", 0, message));
    }
}

/// Words in front of a keyword: `no` and `default`.
fn prefix(line: &Line, context: &mut Context<'_>) -> Option<(Prefix, usize)> {
    let prefix = match line.word(0) {
        "no" => Prefix::No,
        "default" => Prefix::Default,
        _ => return Some((Prefix::None, 0)),
    };
    const NEGATABLE: [&str; 7] =
        ["option", "log", "busy-polling", "set-dumpable", "strict-limits", "insecure-fork-wanted", "numa-cpu-mapping"];
    if NEGATABLE.contains(&line.word(1)) {
        return Some((prefix, 1));
    }
    let message = "negation/default currently supported only for options, log, busy-polling, set-dumpable, \
                   strict-limits, insecure-fork-wanted and numa-cpu-mapping.";
    context.report.add(line.diagnostic(Severity::Alert, "bad-negation", 0, message.into()));
    None
}

fn global_line(global: &mut GlobalDraft, line: &Line, context: &mut Context<'_>) {
    if context.report.is_full() {
        return;
    }
    let Some((prefix, skip)) = prefix(line, context) else { return };
    match keywords::find(true, line.word(skip), line.word(skip + 1)) {
        KeywordMatch::Row(row, words) => {
            let mut call = Call::new(line, skip + words, prefix, row.name, context);
            if !refused(row, &mut call) {
                global.lines.entry(row.name).or_insert_with(|| line.clone());
                if let Status::NoEffect(why) = row.status {
                    call.notice("no-effect", format!("'{}' has no effect: {why}", row.name));
                }
                match row.apply {
                    Apply::Global(apply) => apply(global, &mut call),
                    Apply::Ipvs(apply) => apply(&mut global.model.ipvs, &mut call),
                    Apply::Nothing | Apply::Proxy(_) | Apply::Flag(_) | Apply::HttpFlag(_) => {}
                }
            }
        }
        found => unknown(found, line, skip, "global", true, context),
    }
}

fn proxy_line(draft: &mut Draft, line: &Line, context: &mut Context<'_>) {
    if context.report.is_full() {
        return;
    }
    let Some((prefix, skip)) = prefix(line, context) else { return };
    let (row, words) = match keywords::find(false, line.word(skip), line.word(skip + 1)) {
        KeywordMatch::Row(row, words) => (row, words),
        found => return unknown(found, line, skip, draft.kind.word(), false, context),
    };
    let mut call = Call::new(line, skip + words, prefix, row.name, context);
    if refused(row, &mut call) {
        return;
    }
    match draft.allows(row.sections) {
        true => apply_row(row, draft, &mut call),
        false if draft.kind == Kind::Defaults => {
            let anonymous = if row.sections & NAMED != 0 { "anonymous " } else { "" };
            call.error(skip, "wrong-section", format!("'{}' not allowed in {anonymous}'defaults' section.", row.name));
        }
        false => {
            let lacking = if draft.kind == Kind::Frontend { "backend" } else { "frontend" };
            let (kind, name) = (draft.kind.word(), draft.proxy.name.clone());
            if row.sections & STRICT != 0 {
                let message =
                    format!("'{}' not allowed because {kind} '{name}' has no {lacking} capability.", row.name);
                return call.error(skip, "wrong-section", message);
            }
            let other = match row.name {
                "maxconn" => " Maybe you want 'fullconn' instead ?",
                "fullconn" => " Maybe you want 'maxconn' instead ?",
                _ => "",
            };
            let shown = row.name.strip_prefix("option ").unwrap_or(row.name);
            let message = format!("'{shown}' ignored because {kind} '{name}' has no {lacking} capability.{other}");
            call.warn(skip, "wrong-section", message);
            // Its arguments are judged all the same, on a draft that nobody uses.
            let mut scratch = Draft::scratch(draft);
            apply_row(row, &mut scratch, &mut call);
        }
    }
}

fn apply_row(row: &'static Keyword, draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Status::NoEffect(why) = row.status {
        call.notice("no-effect", format!("'{}' has no effect: {why}", row.name));
    }
    if call.prefix != Prefix::None
        && !row.negatable()
        && let Some(option) = row.name.strip_prefix("option ")
    {
        let message = format!("negation/default is not supported for option '{option}'.");
        return call.error(0, "bad-negation", message);
    }
    match row.apply {
        Apply::Nothing | Apply::Global(_) | Apply::Ipvs(_) => {}
        Apply::Proxy(apply) => apply(draft, call),
        Apply::Flag(field) | Apply::HttpFlag(field) => {
            if !call.at_most(0) {
                return;
            }
            let on = call.prefix == Prefix::None;
            *field(draft) = on;
            if matches!(row.apply, Apply::HttpFlag(_)) {
                match on {
                    true => draft.http_only.insert(row.name, (call.line.clone(), row.sections)),
                    false => draft.http_only.remove(row.name),
                };
            }
        }
    }
    draft.lines.note(row.name, call.line);
}

impl Keyword {
    /// Whether `no` and `default` may stand before it: plain switches, and a few other options.
    fn negatable(&self) -> bool {
        const ALSO: [&str; 6] = [
            "option httpclose",
            "option http-server-close",
            "option http-keep-alive",
            "option redispatch",
            "log",
            "option direct-vip-check",
        ];
        ALSO.contains(&self.name)
            || matches!(self.apply, Apply::Flag(_) | Apply::HttpFlag(_))
            || matches!(self.status, Status::NoEffect(_))
    }
}

/// Reports a keyword that is known but refused.
fn refused(row: &Keyword, call: &mut Call<'_, '_>) -> bool {
    match row.status {
        Status::Done | Status::NoEffect(_) => false,
        Status::NotYet => {
            let message = format!("keyword '{}' is not supported yet", row.name);
            call.error(call.first - 1, "not-yet", message);
            true
        }
        Status::Removed(text) => {
            call.error(call.first - 1, "removed-keyword", text.into());
            true
        }
    }
}

fn unknown(found: KeywordMatch, line: &Line, skip: usize, section: &str, in_global: bool, context: &mut Context<'_>) {
    let word = line.word(skip);
    if let KeywordMatch::Family(members) = found {
        let member = line.word(skip + 1);
        let (id, message) = match (word, member) {
            ("stats", _) if !in_global => ("unknown-keyword", keywords::statistics::unknown(member)),
            ("option", "") => ("missing-argument", "'option' expects an option name.".to_string()),
            ("option", _) => {
                let guess = nearest(member, members.iter().copied());
                let guess = guess.map(|name| format!("; did you mean '{name}' maybe ?")).unwrap_or(".".into());
                ("unknown-option", format!("unknown option '{member}'{guess}"))
            }
            _ => {
                let names = members.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
                ("unknown-keyword", format!("'{word}' only supports {names} (got '{member}')"))
            }
        };
        let mut diagnostic = line.diagnostic(Severity::Alert, id, skip + 1, message);
        if word != "option" {
            let guess = nearest(member, members.iter().copied());
            diagnostic.hint = guess.map(|name| format!("did you mean '{word} {name}'?"));
        }
        return context.report.add(diagnostic);
    }
    let guess = nearest(word, keywords::first_words(in_global))
        .map(|name| format!("; did you mean '{name}' maybe ?"))
        .unwrap_or_default();
    let message = format!("unknown keyword '{word}' in '{section}' section{guess}");
    let mut diagnostic = line.diagnostic(Severity::Alert, "unknown-keyword", skip, message);
    diagnostic.hint = match keywords::find(!in_global, word, line.word(skip + 1)) {
        KeywordMatch::Nothing => keywords::direct::section_hint(word, line.word(skip + 1)),
        _ if in_global => Some(format!("'{word}' belongs in a proxy section, such as 'defaults'")),
        _ => Some(format!("'{word}' belongs in the 'global' section")),
    };
    context.report.add(diagnostic);
}

impl Draft {
    /// Whether a row's sections include this one.
    pub(crate) fn allows(&self, sections: keywords::Sections) -> bool {
        match self.kind {
            Kind::Defaults => sections & DEFAULTS != 0 || (sections & NAMED != 0 && !self.proxy.name.is_empty()),
            Kind::Frontend => sections & keywords::FRONT != 0,
            Kind::Backend => sections & keywords::BACK != 0,
            Kind::Listen => sections & (keywords::FRONT | keywords::BACK) != 0,
        }
    }
}

/// The name of a section or an empty one.
pub(crate) fn name_of(line: &Line) -> Arc<str> {
    Arc::from(line.word(1))
}
