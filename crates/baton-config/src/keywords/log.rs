//! Keywords of proxies about log lines: targets, formats, captures and unique IDs (configuration manual, 4.2).

use baton_model::{LogFormat, Rule, Ruleset};

use crate::lower::{Call, Draft, LogEntry, Prefix, log_target};

pub(super) fn log(draft: &mut Draft, call: &mut Call<'_, '_>) {
    match (call.prefix, call.arg(0)) {
        (Prefix::No | Prefix::Default, "") => draft.logs.clear(),
        (Prefix::No | Prefix::Default, _) => call.wrong(0, "log : 'no log' does not expect arguments".into()),
        (Prefix::None, "global") if call.args() == 1 => draft.logs.push(LogEntry::Global),
        (Prefix::None, _) => {
            if let Some(target) = log_target(call) {
                draft.logs.push(LogEntry::Target(target));
            }
        }
    }
}

pub(super) fn log_tag(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(tag) = call.only("a tag for use in syslog") {
        draft.proxy.logging.tag = Some(tag.into());
    }
}

/// `log-format`: the format of lines from here on, as `option httplog` and its like are.
pub(super) fn log_format(draft: &mut Draft, call: &mut Call<'_, '_>) {
    format(draft, call, Ruleset::LogFormat);
    draft.format = Some(LogFormat::Custom);
}

/// Keeps a format as it is written; `baton-rules` compiles it. A later one takes its place.
pub(super) fn format(draft: &mut Draft, call: &mut Call<'_, '_>, ruleset: Ruleset) {
    if call.arg(0).is_empty() {
        return call.expects(0, "a format string as argument");
    }
    if !call.arg(1).is_empty() {
        let message = format!("'{}' expects only one argument, don't forget to escape spaces!", call.name);
        return call.error(call.first + 1, "extra-argument", message);
    }
    let rule = keep(call, ruleset, call.rest());
    draft.proxy.rules.insert(ruleset, vec![rule]);
}

/// `unique-id-header`.
pub(super) fn unique_id_header(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(name) = header_name(call) {
        draft.proxy.http.unique_id_header = Some(name);
    }
}

/// The single argument as the name of a header field.
pub(super) fn header_name(call: &mut Call<'_, '_>) -> Option<String> {
    let name = call.only("a header name as argument")?;
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)) {
        call.error(call.first, "bad-name", format!("'{}' : '{name}' is not a header name.", call.name));
        return None;
    }
    Some(name.into())
}

/// `capture cookie|request|response …`. Of several cookies the last one is captured.
pub(super) fn capture(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let kind = call.name.trim_start_matches("capture ").to_owned();
    let words = std::iter::once(kind).chain(call.rest()).collect();
    let rule = keep(call, Ruleset::Capture, words);
    draft.proxy.rules.entry(Ruleset::Capture).or_default().push(rule);
}

/// `declare capture request|response len N`.
pub(super) fn declare_capture(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let words = std::iter::once("declare".to_owned()).chain(call.rest()).collect();
    let rule = keep(call, Ruleset::Capture, words);
    draft.proxy.rules.entry(Ruleset::Capture).or_default().push(rule);
}

/// Keeps a line whose words `baton-rules` compiles.
pub(super) fn keep(call: &mut Call<'_, '_>, ruleset: Ruleset, words: Vec<String>) -> Rule {
    let source = call.line.source();
    // The words of a capture begin one before those of the call.
    let first = if ruleset == Ruleset::Capture { call.first - 1 } else { call.first };
    call.context.rule_lines.insert((source.line, source.file.clone()), (call.line.clone(), first));
    Rule { ruleset, words, source }
}
