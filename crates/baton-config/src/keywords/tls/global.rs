//! What the `global` section says about TLS with clients (configuration manual, 3.1 and 3.2).

use std::path::PathBuf;

use baton_model::{ExtraFiles, TlsOptions, TlsVersion};

use super::{ParameterError, ParameterNote, options};
use crate::keywords::{Apply, GLOBAL, Keyword, Status};
use crate::lower::{Call, GlobalDraft};
use crate::values::Unit;

const fn row(
    name: &'static str,
    args: &'static str,
    apply: fn(&mut GlobalDraft, &mut Call<'_, '_>),
    doc: &'static str,
) -> Keyword {
    Keyword { name, sections: GLOBAL, args, status: Status::Done, doc, apply: Apply::Global(apply) }
}

/// A keyword whose arguments are judged and then not used.
const fn none(name: &'static str, apply: fn(&mut GlobalDraft, &mut Call<'_, '_>), why: &'static str) -> Keyword {
    Keyword { name, sections: GLOBAL, args: "…", status: Status::NoEffect(why), doc: "", apply: Apply::Global(apply) }
}

const DHE: &str = "DHE cipher suites are not supported: ECDHE replaces them";
const OPENSSL: &str = "it configures OpenSSL, which Baton does not use";
const RECORDS: &str = "the record size adapts to the data";

/// The rows.
pub(crate) static ROWS: &[Keyword] = &[
    row("ca-base", "DIR", ca_base, "Base directory of relative names of 'ca-file' and 'crl-file'."),
    row("crt-base", "DIR", crt_base, "Base directory of relative names of 'crt'."),
    row("issuers-chain-path", "DIR", issuers_chain_path, "Directory of issuer certificates, to complete chains."),
    row("key-base", "DIR", key_base, "Base directory of relative names of 'key' (as in HAProxy 3.0)."),
    row("ssl-default-bind-ciphers", "CIPHERS", option, "Default 'ciphers' of the 'bind' lines below."),
    row("ssl-default-bind-ciphersuites", "SUITES", option, "Default 'ciphersuites' of the 'bind' lines below."),
    row("ssl-default-bind-client-sigalgs", "LIST", option, "Default 'client-sigalgs' of the 'bind' lines below."),
    row("ssl-default-bind-curves", "CURVES", option, "Default 'curves' of the 'bind' lines below."),
    row(
        "ssl-default-bind-options",
        "[ssl-min-ver V] [ssl-max-ver V] [no-tls-tickets] [prefer-client-ciphers] …",
        default_options,
        "Default TLS settings of the 'bind' lines below.",
    ),
    row("ssl-default-bind-sigalgs", "LIST", option, "Default 'sigalgs' of the 'bind' lines below."),
    row("ssl-load-extra-del-ext", "", load_extra_del_ext, "The key of 'x.crt' is in 'x.key' instead of 'x.crt.key'."),
    row(
        "ssl-load-extra-files",
        "none|all|[bundle] [sctl] [ocsp] [issuer] [key]",
        load_extra_files,
        "Extra files that are loaded with a certificate.",
    ),
    row("ssl-skip-self-issued-ca", "", skip_self_issued_ca, "Self-issued CA certificates are not sent with a chain."),
    row("tune.ssl.cachesize", "NUMBER", cachesize, "Size of the session cache, for clients without tickets."),
    row("tune.ssl.capture-buffer-size", "BYTES", capture, "Bytes of a ClientHello that are kept for sample fetches."),
    row("tune.ssl.lifetime", "TIME", lifetime, "Lifetime of TLS sessions for resumption."),
    row("tune.ssl.maxrecord", "BYTES", maxrecord, "Maximum size of sent TLS records (plain text)."),
    none("ssl-dh-param-file", file, DHE),
    none("ssl-engine", anything, OPENSSL),
    none("ssl-mode-async", anything, OPENSSL),
    none("ssl-propquery", anything, OPENSSL),
    none("ssl-provider", anything, OPENSSL),
    none("ssl-provider-path", anything, OPENSSL),
    none("tune.ssl.capture-cipherlist-size", anything, "replaced by 'tune.ssl.capture-buffer-size'"),
    none("tune.ssl.default-dh-param", dh_param, DHE),
    none("tune.ssl.force-private-cache", anything, "there is only one process"),
    none("tune.ssl.hard-maxrecord", size, RECORDS),
    none("tune.ssl.keylog", keylog, "TLS secrets are never kept"),
    none("tune.ssl.ssl-ctx-cache-size", anything, "it configures 'generate-certificates', which is not supported yet"),
];

fn anything(_: &mut GlobalDraft, _: &mut Call<'_, '_>) {}

fn directory(call: &mut Call<'_, '_>) -> Option<PathBuf> {
    call.only("a directory path as an argument").map(PathBuf::from)
}

fn ca_base(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(path) = directory(call) {
        call.context.tls.bases.ca = Some(path.clone());
        global.model.tls.ca_base = Some(path);
    }
}

fn crt_base(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(path) = directory(call) {
        call.context.tls.bases.crt = Some(path.clone());
        global.model.tls.crt_base = Some(path);
    }
}

fn key_base(_: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(path) = directory(call) {
        call.context.tls.bases.key = Some(path);
    }
}

fn issuers_chain_path(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(path) = directory(call) {
        let path = call.context.path(&call.line.file, path);
        match call.context.env.is_dir(&path) {
            true => global.model.tls.issuers_chain_path = Some(path),
            false => call.wrong(0, format!("'issuers-chain-path': '{}' is not a directory", path.display())),
        }
    }
}

/// `ssl-default-bind-X` sets what the word X of a `bind` line sets.
fn option(_: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let word = call.name.trim_start_matches("ssl-default-bind-");
    let Some(value) = call.only("a list of names as an argument") else { return };
    let Some(row) = options::find(word) else { return };
    let mut options = std::mem::take(&mut call.context.tls.options);
    let applied = (row.apply)(&mut options, value, &call.context.places(&call.line.file));
    call.context.tls.options = options;
    match applied {
        Ok(ParameterNote::Nothing) => {}
        Ok(ParameterNote::Notice(message)) => call.notice("no-effect", format!("'{}' : {message}", call.name)),
        Ok(ParameterNote::Warning(message)) => {
            call.warn(call.first, "left-out", format!("'{}' : {message}", call.name))
        }
        Err(ParameterError { message, hint }) => {
            let message = format!("'{}' : {message}", call.name);
            let mut diagnostic = call.line.diagnostic(crate::Severity::Alert, "bad-value", call.first, message);
            diagnostic.hint = hint;
            call.context.report.add(diagnostic);
        }
    }
}

const OPTIONS: [&str; 9] = [
    "no-sslv3",
    "no-tlsv12",
    "no-tlsv13",
    "no-tls-tickets",
    "prefer-client-ciphers",
    "force-tlsv12",
    "force-tlsv13",
    "ssl-min-ver",
    "ssl-max-ver",
];

fn default_options(_: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if call.args() == 0 {
        return call.expects(0, "an option as an argument");
    }
    let mut at = 0;
    while at < call.args() {
        let tls = &mut call.context.tls;
        match call.line.word(call.first + at) {
            "no-sslv3" | "no-tlsv10" | "no-tlsv11" => {}
            "no-tlsv12" => tls.without.tls12 = true,
            "no-tlsv13" => tls.without.tls13 = true,
            "no-tls-tickets" => tls.no_tickets = true,
            "prefer-client-ciphers" => tls.prefer_client_ciphers = true,
            "force-tlsv12" => force(&mut tls.options, TlsVersion::Tls12),
            "force-tlsv13" => force(&mut tls.options, TlsVersion::Tls13),
            word @ ("force-sslv3" | "force-tlsv10" | "force-tlsv11") => {
                let message = format!("'{}' : '{word}' {}", call.name, options::TOO_OLD);
                call.error(call.first + at, "too-old", message);
            }
            word @ ("ssl-min-ver" | "ssl-max-ver") => {
                at += 1;
                if call.arg(at).is_empty() {
                    let message =
                        format!("'{word}' : missing the ssl/tls version on global statement '{}'.", call.name);
                    return call.error(call.first + at, "missing-argument", message);
                }
                let (value, Some(row)) = (call.arg(at), options::find(word)) else { return };
                let mut options = std::mem::take(&mut call.context.tls.options);
                let applied = (row.apply)(&mut options, value, &call.context.places(&call.line.file));
                call.context.tls.options = options;
                match applied {
                    Ok(ParameterNote::Nothing) => {}
                    Ok(ParameterNote::Notice(message) | ParameterNote::Warning(message)) => {
                        call.warn(call.first + at, "left-out", format!("'{}' : {message}", call.name));
                    }
                    Err(fault) => {
                        let message = format!("{} on global statement '{}'.", fault.message, call.name);
                        call.error_with(call.first + at, "bad-value", message, fault.hint);
                    }
                }
            }
            word => {
                let message = format!("unknown option '{word}' on global statement '{}'.", call.name);
                return call.not_one_of(at, message, OPTIONS);
            }
        }
        at += 1;
    }
}

fn force(options: &mut TlsOptions, version: TlsVersion) {
    (options.oldest, options.newest) = (Some(version), Some(version));
}

fn load_extra_del_ext(global: &mut GlobalDraft, _: &mut Call<'_, '_>) {
    global.model.tls.extra.replace_extension = true;
}

fn load_extra_files(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if call.args() == 0 {
        return call.expects(0, "one or multiple arguments (none, all, bundle, sctl, ocsp, issuer, key)");
    }
    let replace_extension = global.model.tls.extra.replace_extension;
    let none = ExtraFiles { bundle: false, sctl: false, ocsp: false, issuer: false, key: false, replace_extension };
    let mut extra = none;
    for index in 0..call.args() {
        match call.arg(index) {
            "none" | "all" if call.args() > 1 => {
                return call.wrong(index, format!("'{}' 'none' and 'all' can be only used alone", call.name));
            }
            "none" => extra = none,
            "all" => extra = ExtraFiles { replace_extension, ..ExtraFiles::default() },
            "bundle" => extra.bundle = true,
            "sctl" => extra.sctl = true,
            "ocsp" => extra.ocsp = true,
            "issuer" => extra.issuer = true,
            "key" => extra.key = true,
            word => {
                let expects = "expects one or multiple arguments (none, all, bundle, sctl, ocsp, issuer, key)";
                let message = format!("'{}' {expects}, found '{word}'.", call.name);
                return call.not_one_of(index, message, ["none", "all", "bundle", "sctl", "ocsp", "issuer", "key"]);
            }
        }
    }
    global.model.tls.extra = extra;
}

fn skip_self_issued_ca(global: &mut GlobalDraft, _: &mut Call<'_, '_>) {
    global.model.tls.skip_self_issued_ca = true;
}

fn positive(call: &mut Call<'_, '_>) -> Option<u32> {
    call.number(0, i64::from(i32::MAX)).and_then(|value| u32::try_from(value).ok())
}

fn cachesize(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    global.model.tls.cache_size = positive(call);
}

fn capture(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    global.model.tls.capture_buffer = positive(call).unwrap_or_default();
}

fn maxrecord(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    global.model.tls.max_record = positive(call).filter(|bytes| *bytes > 0);
}

fn size(_: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    positive(call);
}

fn lifetime(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let time = call.time_at(call.first, "tune.ssl.lifetime", Unit::Seconds);
    if call.at_most(1) {
        global.model.tls.lifetime_s = time.and_then(|time| u32::try_from(time.as_secs()).ok());
    }
}

fn file(_: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let Some(name) = call.only("a file path as an argument") else { return };
    let path = call.context.path(&call.line.file, name);
    if let Err(error) = call.context.env.read(&path) {
        let message = format!("'{}': unable to load DH parameters from file <{name}>: {error}.", call.name);
        call.error(call.first, "cannot-open", message);
    }
}

fn dh_param(_: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    call.number(1024, i64::from(i32::MAX));
}

fn keylog(_: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if !matches!(call.arg(0), "on" | "off") {
        let message = format!("'{}' expects either 'on' or 'off' but got '{}'.", call.name, call.arg(0));
        call.not_one_of(0, message, ["on", "off"]);
    }
}
