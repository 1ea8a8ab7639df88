//! What only a whole section can tell about TLS: certificates that are missing, and what does not fit together.

use std::sync::Arc;

use baton_model::{BindTls, ClientVerify, CrtLine, CrtSource, CrtStore, Mode, Model, Source, TlsOptions};
use baton_rules::suggestion;

use super::crt_store;
use crate::diagnostic::{Diagnostic, Severity};
use crate::lower::{Context, Draft};
use crate::syntax::Line;

/// Gives the certificates of `ssl-f-use` to the addresses of a section, and judges these.
pub(crate) fn certificates(
    proxy: &mut baton_model::Proxy,
    draft_lines: &[Line],
    uses: &[CrtLine],
    context: &mut Context<'_>,
) {
    let name = proxy.name.clone();
    // Addresses of one line share their settings.
    let mut last: Option<(Arc<BindTls>, Arc<BindTls>)> = None;
    for bind in &mut proxy.binds {
        let place = bind.place();
        let Some(tls) = &mut bind.options.tls else { continue };
        if let Some((before, after)) = &last
            && Arc::ptr_eq(before, tls)
        {
            *tls = after.clone();
            continue;
        }
        let before = tls.clone();
        if !uses.is_empty() {
            let more = uses.iter().map(|line| CrtSource::Line(line.clone()));
            Arc::make_mut(tls).certificates.extend(more);
        }
        let about = |source: &Source, severity, id, message: String| match crt_store::line(
            draft_lines,
            source.line,
            &source.file,
        ) {
            Some(line) => Diagnostic { late: true, ..line.diagnostic(severity, id, 1, message) },
            None => {
                let (file, line) = (source.file.clone(), source.line);
                Diagnostic { late: true, file, line, ..Diagnostic::plain(severity, id, message) }
            }
        };
        judge(tls, &bind.source, proxy.mode == Mode::Http, &mut |source, severity, id, what| {
            let message = format!("Proxy '{name}': {what} for bind '{place}' at [{source}].");
            context.report.add(about(source, severity, id, message));
        });
        last = Some((before, tls.clone()));
    }
}

type Say<'s> = dyn FnMut(&Source, Severity, &'static str, &str) + 's;

fn judge(tls: &BindTls, source: &Source, http: bool, say: &mut Say<'_>) {
    let some = |source: &CrtSource| match source {
        CrtSource::Crt { .. } | CrtSource::Line(_) => true,
        CrtSource::List { lines, .. } => !lines.is_empty(),
    };
    match tls.certificates.iter().any(some) {
        true => {}
        false if tls.strict_sni => {
            return say(
                source,
                Severity::Warning,
                "no-certificate",
                "no SSL certificate specified, ssl connections will fail (use 'crt')",
            );
        }
        false => {
            return say(source, Severity::Alert, "no-certificate", "no SSL certificate specified (use 'crt')");
        }
    }
    if http {
        speaks_no_http_3(tls, source, say);
    }
    let nothing = TlsOptions::default();
    if tls.certificates.iter().any(|source| matches!(source, CrtSource::Crt { .. })) {
        fits(&nothing, &tls.options, source, say);
    }
    for source in &tls.certificates {
        match source {
            CrtSource::Crt { .. } => {}
            CrtSource::List { lines, .. } => {
                lines.iter().for_each(|line| fits(&line.options, &tls.options, &line.source, say));
            }
            CrtSource::Line(line) => fits(&line.options, &tls.options, &line.source, say),
        }
    }
}

/// What Baton does not speak is left out of the offer, so that clients agree on something it does. Said once.
fn speaks_no_http_3(tls: &BindTls, source: &Source, say: &mut Say<'_>) {
    let of_lines = tls.certificates.iter().flat_map(|from| match from {
        CrtSource::Crt { .. } => &[],
        CrtSource::List { lines, .. } => &**lines,
        CrtSource::Line(line) => std::slice::from_ref(line),
    });
    let options = std::iter::once((&tls.options, source)).chain(of_lines.map(|line| (&line.options, &line.source)));
    let asks = |options: &TlsOptions| options.alpn.iter().flatten().any(|name| name == "h3");
    if let Some((_, place)) = options.into_iter().find(|(options, _)| asks(options)) {
        let text = "'h3' of 'alpn' is not offered (HTTP/3 is not supported yet, clients use HTTP/2 or HTTP/1.1)";
        say(place, Severity::Warning, "left-out", text);
    }
}

/// Whether a line's options, with those of the `bind` line behind them, mean something.
fn fits(own: &TlsOptions, bind: &TlsOptions, source: &Source, say: &mut Say<'_>) {
    let verify = own.verify.or(bind.verify).unwrap_or_default();
    let authorities = [&own.ca_file, &bind.ca_file, &own.ca_verify_file, &bind.ca_verify_file];
    if verify != ClientVerify::None && authorities.iter().all(|file| file.is_none()) {
        say(source, Severity::Alert, "no-ca-file", "verify is enabled but no CA file specified");
    }
    let (oldest, newest) = (own.oldest.or(bind.oldest), own.newest.or(bind.newest));
    let own_range = own.oldest.is_some() || own.newest.is_some();
    if own_range && newest.is_some() && oldest > newest {
        say(source, Severity::Alert, "no-version", "all SSL/TLS versions are disabled");
    }
}

/// Whether all `@STORE/NAME` are there.
pub(crate) fn references(model: &Model, drafts: &[Draft], context: &mut Context<'_>) {
    let stores = &model.crt_stores;
    for (proxy, draft) in model.proxies.iter().zip(drafts.iter().filter(|draft| draft.valid)) {
        for bind in &proxy.binds {
            let Some(tls) = &bind.options.tls else { continue };
            for source in &tls.certificates {
                let (path, place) = match source {
                    CrtSource::Crt { path, .. } => (path, &bind.source),
                    CrtSource::Line(line) => (&line.crt, &line.source),
                    CrtSource::List { lines, .. } => {
                        for line in lines.iter() {
                            exists(&line.crt.to_string_lossy(), &line.source, draft, stores, context);
                        }
                        continue;
                    }
                };
                exists(&path.to_string_lossy(), place, draft, stores, context);
            }
        }
    }
}

fn exists(name: &str, place: &Source, draft: &Draft, stores: &[Arc<CrtStore>], context: &mut Context<'_>) {
    if !name.starts_with('@') || crt_store::has(stores, name) {
        return;
    }
    let message = format!("'{name}' is not in any 'crt-store' section");
    let mut diagnostic = match crt_store::line(&draft.ssl_lines, place.line, &place.file) {
        Some(line) => {
            let word = line.texts().position(|word| word == name).unwrap_or(0);
            line.diagnostic(Severity::Alert, "unknown-certificate", word, message)
        }
        None => {
            let plain = Diagnostic::plain(Severity::Alert, "unknown-certificate", message);
            Diagnostic { file: place.file.clone(), line: place.line, ..plain }
        }
    };
    diagnostic.late = true;
    let known = crt_store::references(stores);
    diagnostic.hint = suggestion(name, known.iter().map(String::as_str))
        .or(Some("write 'crt-store NAME' with 'load crt FILE alias ALIAS', and '@NAME/ALIAS' here".into()));
    context.report.add(diagnostic);
}
