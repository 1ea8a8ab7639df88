//! The words of `server` lines about TLS, and what they come to when the whole configuration is known (configuration manual,
//! 5.2).

pub(crate) mod defaults;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_model::{CheckStep, GlobalTls, ServerTls, TlsVersion};
use baton_rules::{Expr, RulePosition, suggestion};
use baton_tls::authorities::Authority;
use baton_tls::judge_words;
use baton_tls::store::Files;

use super::parameters::{none, row};
use crate::diagnostic::Severity;
use crate::keywords::Parameter;
use crate::keywords::tls::{RAISED, is_too_old};
use crate::lower::{Call, Context, RuleFiles, ServerDraft, late};
use crate::syntax::Line;

/// What a server's line says about TLS, and what it begins with from `default-server`.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsWords {
    /// `ssl`.
    pub on: bool,
    /// `default-server ssl`: it can be switched on at run time where the line says `no-ssl`.
    pub ready: bool,
    /// `check-ssl`, `no-check-ssl`.
    checks: Option<bool>,
    /// `verify`.
    verify: Option<bool>,
    /// `no-tls-tickets`, `tls-tickets`.
    no_tickets: Option<bool>,
    /// `no-tlsv12`, `no-tlsv13`.
    off: [bool; 2],
    /// One of `no-sslv3` … `no-tlsv13`.
    has_off: bool,
    /// One of `ssl-min-ver`, `ssl-max-ver`, `force-tlsv12` …
    bounded: bool,
    settings: ServerTls,
}

/// What a word expects behind it, as HAProxy says it.
pub(super) fn missing(word: &str) -> Option<&'static str> {
    Some(match word {
        "verify" => "verify method",
        "verifyhost" => "hostname to verify against",
        "sni" => "sni expression",
        "check-sni" => "SNI",
        "alpn" | "check-alpn" => "the comma-delimited ALPN protocol suite",
        "npn" => "the comma-delimited NPN protocol suite",
        "ca-file" => "CAfile path",
        "crl-file" => "CRLfile path",
        "crt" => "certificate file path",
        "ciphers" | "ciphersuites" => "cipher suite",
        "curves" => "curve suite",
        "sigalgs" => "signature algorithm list",
        "ssl-min-ver" | "ssl-max-ver" => "the ssl/tls version",
        _ => return None,
    })
}

/// Whether a word is about TLS with a server, and not with its checks alone.
pub(super) fn is_about_traffic(word: &str) -> bool {
    !word.contains("check") && PARAMETERS.iter().any(|row| row.name == word)
}

pub(super) static PARAMETERS: &[Parameter<ServerDraft>] = &[
    row("alpn", 1, alpn, "ALPN protocols to offer."),
    row("ca-file", 1, ca_file, "Trusted CA certificates: a file, a directory, or `@system-ca`."),
    row("check-alpn", 1, check_alpn, "ALPN protocols that health checks over TLS offer."),
    row("check-sni", 1, check_sni, "SNI of health checks over TLS."),
    row("check-ssl", 0, |s, _, _| checks(s, true), "Health checks over TLS."),
    row("ciphers", 1, ciphers, "Cipher suites of TLS 1.2, by OpenSSL's names."),
    row("ciphersuites", 1, ciphersuites, "Cipher suites of TLS 1.3, by OpenSSL's names."),
    row("crl-file", 1, crl_file, "Certificate revocation lists (CRL)."),
    row("crt", 1, crt, "Client certificate and key, for servers that request one."),
    row("curves", 1, curves, "Key exchange groups, by OpenSSL's names (HAProxy 2.9)."),
    row("force-sslv3", 0, absent, "Refused, as by HAProxy: SSLv3 is not supported."),
    row("force-tlsv10", 0, absent, "Refused: only TLS 1.2 and 1.3 are supported."),
    row("force-tlsv11", 0, absent, "Refused: only TLS 1.2 and 1.3 are supported."),
    row("force-tlsv12", 0, |s, _, _| force(s, TlsVersion::Tls12), "TLS 1.2 only."),
    row("force-tlsv13", 0, |s, _, _| force(s, TlsVersion::Tls13), "TLS 1.3 only."),
    row("no-check-ssl", 0, |s, _, _| checks(s, false), "Undoes 'check-ssl'."),
    row("no-ssl", 0, |s, _, _| ssl(s, false), "Undoes 'ssl'."),
    row("no-ssl-reuse", 0, |s, _, _| reuse(s, false), "Disables session resumption."),
    row("no-sslv3", 0, |s, _, _| off(s, None), "No effect: SSLv3 is not supported."),
    row("no-tls-tickets", 0, |s, _, _| tickets(s, false), "Sessions of TLS 1.2 are resumed by their id only."),
    row("no-tlsv10", 0, |s, _, _| off(s, None), "No effect: only TLS 1.2 and 1.3 are supported."),
    row("no-tlsv11", 0, |s, _, _| off(s, None), "No effect: only TLS 1.2 and 1.3 are supported."),
    row("no-tlsv12", 0, |s, _, _| off(s, Some(0)), "TLS 1.3 only."),
    row("no-tlsv13", 0, |s, _, _| off(s, Some(1)), "TLS 1.2 only."),
    row("no-verifyhost", 0, no_verifyhost, "Undoes 'verifyhost'."),
    row("sigalgs", 1, sigalgs, "Signature algorithms, by OpenSSL's names (HAProxy 2.9)."),
    row("sni", 1, sni, "SNI to send, an expression; the certificate must match it."),
    row("ssl", 0, |s, _, _| ssl(s, true), "TLS with the server (see [tls.md](tls.md))."),
    row("ssl-max-ver", 1, newest, "Maximum TLS version."),
    row("ssl-min-ver", 1, oldest, "Minimum TLS version."),
    row("ssl-reuse", 0, |s, _, _| reuse(s, true), "Undoes 'no-ssl-reuse'."),
    row("tls-tickets", 0, |s, _, _| tickets(s, true), "Undoes 'no-tls-tickets'."),
    row("verify", 1, verify, "`required` (the default): the certificate is verified; `none`: it is not."),
    row("verifyhost", 1, verifyhost, "Name that the certificate must match if no SNI is sent."),
    none("allow-0rtt", 0, "early data (0-RTT) is never sent"),
    none("npn", 1, "NPN is obsolete: use 'alpn'"),
];

fn ssl(server: &mut ServerDraft, on: bool) -> usize {
    server.tls.on = on;
    0
}

fn checks(server: &mut ServerDraft, on: bool) -> usize {
    server.tls.checks = Some(on);
    0
}

fn reuse(server: &mut ServerDraft, on: bool) -> usize {
    server.tls.settings.no_reuse = !on;
    0
}

fn tickets(server: &mut ServerDraft, on: bool) -> usize {
    server.tls.no_tickets = Some(!on);
    0
}

fn force(server: &mut ServerDraft, version: TlsVersion) -> usize {
    server.tls.settings.oldest = Some(version);
    server.tls.settings.newest = Some(version);
    server.tls.bounded = true;
    0
}

fn off(server: &mut ServerDraft, version: Option<usize>) -> usize {
    server.tls.has_off = true;
    if let Some(version) = version {
        server.tls.off[version] = true;
    }
    0
}

fn absent(_: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let word = call.line.word(at);
    call.error(at, "old-tls", format!("'{word}' : {TOO_OLD}."));
    0
}

const TOO_OLD: &str = "only TLS 1.2 and 1.3 are supported, older versions are insecure (RFC 8996)";

/// A version's word. `None`: it was complained about.
pub(crate) fn version(call: &mut Call<'_, '_>, at: usize) -> Option<TlsVersion> {
    match call.line.word(at) {
        "TLSv1.2" => Some(TlsVersion::Tls12),
        "TLSv1.3" => Some(TlsVersion::Tls13),
        word @ ("SSLv3" | "TLSv1.0" | "TLSv1.1") => {
            call.error(at, "old-tls", format!("'{word}' : {TOO_OLD}."));
            None
        }
        word => {
            let hint = suggestion(word, ["TLSv1.2", "TLSv1.3"]);
            call.error_with(at, "bad-value", format!("'{word}' : unknown ssl/tls version."), hint);
            None
        }
    }
}

/// The version of `ssl-min-ver`: one that is too old is raised to the oldest one here. `None`: it was complained about.
pub(crate) fn oldest_version(call: &mut Call<'_, '_>, at: usize) -> Option<TlsVersion> {
    let word = call.line.word(at);
    if is_too_old(word) {
        call.warn(at, "left-out", format!("'ssl-min-ver {word}' {RAISED}"));
        return Some(TlsVersion::Tls12);
    }
    version(call, at)
}

fn oldest(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.tls.settings.oldest = oldest_version(call, at + 1);
    server.tls.bounded = true;
    1
}

fn newest(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.tls.settings.newest = version(call, at + 1);
    server.tls.bounded = true;
    1
}

fn verify(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    match call.line.word(at + 1) {
        "none" => server.tls.verify = Some(false),
        "required" => server.tls.verify = Some(true),
        odd => {
            let message =
                format!("'verify' : unknown verify method '{odd}', only 'none' and 'required' are supported.");
            call.error_with(at + 1, "bad-value", message, suggestion(odd, ["none", "required"]));
        }
    }
    1
}

fn verifyhost(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.tls.settings.verify_host = Some(call.line.word(at + 1).into());
    1
}

fn no_verifyhost(server: &mut ServerDraft, _: &mut Call<'_, '_>, _: usize) -> usize {
    server.tls.settings.verify_host = None;
    0
}

fn sni(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let text = call.line.word(at + 1);
    let files = RuleFiles::new(call.context, call.line.file.clone());
    if let Err(fault) = Expr::compile(text, RulePosition::BackendRequest, &files) {
        let message = format!("{}error detected while parsing sni expression : {}.", call.about, fault.message);
        let mut diagnostic = call.line.diagnostic(Severity::Alert, "bad-rule", at + 1, message);
        diagnostic.hint = fault.hint;
        call.context.report.add(diagnostic);
    }
    server.tls.settings.sni = Some(text.into());
    1
}

/// The names between commas; complains when there is none.
pub(crate) fn protocols(call: &mut Call<'_, '_>, word: usize, name: &str) -> Option<Vec<String>> {
    let names: Vec<String> =
        call.line.word(word).split(',').filter(|name| !name.is_empty()).map(str::to_string).collect();
    if names.is_empty() {
        let message = format!("'{name}' : missing the comma-delimited ALPN protocol suite.");
        call.error(word, "missing-argument", message);
        return None;
    }
    if let Some(long) = names.iter().find(|name| name.len() > 255) {
        let message = format!("'{name}' : a protocol's name has at most 255 bytes, '{long}' has {}.", long.len());
        call.error(word, "bad-value", message);
        return None;
    }
    Some(names)
}

fn alpn(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.tls.settings.alpn = protocols(call, at + 1, "alpn");
    1
}

fn check_alpn(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.server.check.alpn = protocols(call, at + 1, "check-alpn");
    1
}

fn check_sni(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    match call.line.word(at + 1) {
        "" => call.error(at + 1, "missing-argument", "'check-sni' : missing SNI.".into()),
        name => server.server.check.sni = Some(name.into()),
    }
    1
}

fn ca_file(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.tls.settings.ca_file = Some(call.context.places(&call.line.file).ca(call.line.word(at + 1)));
    1
}

fn crl_file(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.tls.settings.crl_file = Some(call.context.places(&call.line.file).ca(call.line.word(at + 1)));
    1
}

fn crt(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.tls.settings.crt = Some(call.context.places(&call.line.file).crt(call.line.word(at + 1)));
    1
}

macro_rules! text {
    ($($name:ident),*) => {$(
        fn $name(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
            server.tls.settings.$name = Some(call.line.word(at + 1).into());
            1
        }
    )*};
}
text!(ciphers, ciphersuites, curves, sigalgs);

/// What a backend knows of its servers' TLS.
pub(crate) struct Surroundings<'a, 'f> {
    /// The `global` section.
    pub global: &'a GlobalTls,
    /// The backend's name.
    pub backend: &'a str,
    /// It speaks HTTP.
    pub http: bool,
    /// What `check-proto` may name: what its servers' checks speak without the word comes first.
    pub check_protos: &'static [&'static str],
    /// The steps of its health check.
    pub steps: &'a [CheckStep],
    /// What was found wrong with files, of all servers.
    pub files: &'a mut JudgedFiles<'f>,
    /// The settings made last: those of most servers are equal.
    pub last: Option<Arc<ServerTls>>,
}

/// Files of authorities that were judged, each once for all servers that name it. They are read for good when the configuration
/// is prepared; here a fault is told with its line.
pub(crate) struct JudgedFiles<'f> {
    /// `None`: they are not read here.
    files: Option<&'f dyn Files>,
    /// What is wrong, by `word` and path.
    known: HashMap<(&'static str, PathBuf), Option<String>>,
}

impl<'f> JudgedFiles<'f> {
    /// Reads what is asked for from `files`.
    pub fn new(files: &'f dyn Files) -> JudgedFiles<'f> {
        JudgedFiles { files: Some(files), known: HashMap::new() }
    }

    /// Reads nothing, for a server that may only use files that are in use.
    pub fn unread() -> JudgedFiles<'f> {
        JudgedFiles { files: None, known: HashMap::new() }
    }

    /// What is wrong with the first bad one of the files that a server names.
    fn fault(&mut self, settings: &ServerTls) -> Option<String> {
        let named = [("ca-file", &settings.ca_file), ("crl-file", &settings.crl_file)];
        named.into_iter().find_map(|(word, path)| self.judge(word, path.as_deref()?))
    }

    fn judge(&mut self, word: &'static str, path: &Path) -> Option<String> {
        let files = self.files?;
        let judge = || Authority::load(path, files).err().map(|fault| fault.about(word, path));
        self.known.entry((word, path.to_owned())).or_insert_with(judge).clone()
    }
}

impl TlsWords {
    /// `sni`, as it is written.
    pub fn sni(&self) -> Option<&str> {
        self.settings.sni.as_deref()
    }
}

/// Makes the settings of a server whose line was read, and complains about what cannot work.
pub(crate) fn judge(
    server: &mut ServerDraft,
    line: &Line,
    around: &mut Surroundings<'_, '_>,
    context: &mut Context<'_>,
) {
    let words = server.tls.share();
    let check = &server.server.check;
    let asked_by_step =
        check.enabled && around.steps.iter().any(|step| matches!(step, CheckStep::Connect(connect) if connect.ssl));
    let checks = words.checks == Some(true) || asked_by_step;
    let needed = words.on || checks || words.ready;
    let elsewhere = check.addr.is_some() || check.port.is_some();
    if needed {
        let encrypted = words.checks.unwrap_or(words.on && !elsewhere);
        let settings = settings(server, &words, line, around, context);
        let server = &mut *server.server;
        server.check.ssl = encrypted;
        if words.on {
            server.tls = Some(settings);
        } else if checks {
            server.check.tls = Some(settings);
        } else {
            server.tls_ready = Some(settings);
        }
    } else if let Some(reason) = around.files.fault(&words.settings) {
        // Read all the same, as HAProxy does: what is named should be there.
        fault(server, line, around, context, "bad-certificate", &reason);
    }
}

fn fault(
    server: &ServerDraft,
    line: &Line,
    around: &Surroundings<'_, '_>,
    context: &mut Context<'_>,
    id: &'static str,
    message: &str,
) {
    let message = format!("'server {}/{}' : {message}.", around.backend, server.server.name);
    context.report.add(late(line, Severity::Alert, id, 0, message));
}

fn settings(
    server: &ServerDraft,
    words: &TlsWords,
    line: &Line,
    around: &mut Surroundings<'_, '_>,
    context: &mut Context<'_>,
) -> Arc<ServerTls> {
    let defaults = &around.global.server_defaults;
    let own = &words.settings;
    let mut made = ServerTls {
        verify: words.verify.unwrap_or(!around.global.server_verify_none),
        ciphers: own.ciphers.clone().or_else(|| defaults.ciphers.clone()),
        ciphersuites: own.ciphersuites.clone().or_else(|| defaults.ciphersuites.clone()),
        curves: own.curves.clone().or_else(|| defaults.curves.clone()),
        sigalgs: own.sigalgs.clone().or_else(|| defaults.sigalgs.clone()),
        no_tickets: words.no_tickets.unwrap_or(defaults.no_tickets),
        ..own.clone()
    };
    if words.bounded && words.has_off {
        let message = format!(
            "'server {}/{}' : no-sslv3/no-tlsv1x are ignored for this server. Use only 'ssl-min-ver' and 'ssl-max-ver' \
             to fix.",
            around.backend, server.server.name
        );
        context.report.add(late(line, Severity::Warning, "ignored-words", 0, message));
    }
    match (words.bounded, words.off) {
        (true, _) | (false, [false, false]) => {}
        (false, [true, false]) => made.oldest = Some(TlsVersion::Tls13),
        (false, [false, true]) => made.newest = Some(TlsVersion::Tls12),
        (false, [true, true]) => {
            (made.oldest, made.newest) = (Some(TlsVersion::Tls13), Some(TlsVersion::Tls12));
        }
    }
    made.oldest = made.oldest.or(defaults.oldest);
    made.newest = made.newest.or(defaults.newest);
    // Without it, HTTP/1 would be spoken to a server that has agreed on HTTP/2.
    if around.http && server.proto == Some("h1") {
        strip(&mut made.alpn);
    }
    if made.oldest.is_some() && made.newest.is_some() && made.oldest > made.newest {
        let message = format!(
            "backend '{}': all SSL/TLS versions are disabled for server '{}'",
            around.backend, server.server.name
        );
        fault(server, line, around, context, "no-versions", &message);
        return Arc::new(made);
    }
    if made.verify && made.ca_file.is_none() {
        let message = if words.verify.is_some() {
            "verify is enabled but no CA file specified"
        } else {
            "verify is enabled by default but no CA file specified. If you're running on a LAN where you're certain to \
             trust the server's certificate, please set an explicit 'verify none' statement on the 'server' line, or use \
             'ssl-server-verify none' in the global section to disable server-side verifications by default"
        };
        fault(server, line, around, context, "no-ca-file", message);
        return Arc::new(made);
    }
    if let Some(last) = &around.last
        && **last == made
    {
        return Arc::clone(last);
    }
    let made = Arc::new(made);
    if let Err(problem) = judge_words(&made) {
        fault(server, line, around, context, "bad-certificate", &problem.0);
    }
    if let Some(reason) = around.files.fault(&made) {
        fault(server, line, around, context, "bad-certificate", &reason);
    }
    around.last = Some(Arc::clone(&made));
    made
}

/// Takes HTTP/2 out.
fn strip(alpn: &mut Option<Vec<String>>) {
    let Some(names) = alpn else { return };
    names.retain(|name| name != "h2");
    if names.is_empty() {
        *alpn = None;
    }
}
