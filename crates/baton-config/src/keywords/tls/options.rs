//! Words that stand on a `bind` line as well as in the brackets of a `crt-list` (configuration manual, 5.1 `crt-list`).

use baton_model::{ClientVerify, TlsOptions, TlsVersion};
use baton_rules::suggestion;
use baton_tls::names::{self, NameError, NameList};

use super::{FilePaths, ParameterError, ParameterNote};

/// One of them.
#[derive(Clone, Copy)]
pub(super) struct OptionRow {
    pub name: &'static str,
    /// Whether a value follows.
    pub args: usize,
    pub apply: fn(&mut TlsOptions, &str, &FilePaths<'_>) -> Result<ParameterNote, ParameterError>,
}

const fn row(
    name: &'static str,
    args: usize,
    apply: fn(&mut TlsOptions, &str, &FilePaths<'_>) -> Result<ParameterNote, ParameterError>,
) -> OptionRow {
    OptionRow { name, args, apply }
}

static ROWS: [OptionRow; 16] = [
    row("allow-0rtt", 0, allow_0rtt),
    row("alpn", 1, alpn),
    row("ca-file", 1, |options, name, places| set(&mut options.ca_file, places.ca(name))),
    row("ca-verify-file", 1, |options, name, places| set(&mut options.ca_verify_file, places.ca(name))),
    row("ciphers", 1, |options, text, _| named(&mut options.ciphers, text, names::ciphers(text))),
    row("ciphersuites", 1, |options, text, _| named(&mut options.ciphersuites, text, names::ciphersuites(text))),
    row("client-sigalgs", 1, |options, text, _| named(&mut options.client_sigalgs, text, names::signatures(text))),
    row("crl-file", 1, |options, name, places| set(&mut options.crl_file, places.ca(name))),
    row("curves", 1, |options, text, _| named(&mut options.curves, text, names::curves(text))),
    row("ecdhe", 1, ecdhe),
    row("no-alpn", 0, |options, _, _| set(&mut options.alpn, Vec::new())),
    row("no-ca-names", 0, no_ca_names),
    row("npn", 1, |_, _, _| Ok(ParameterNote::Notice("'npn' has no effect: NPN is obsolete, use 'alpn'".into()))),
    row("sigalgs", 1, |options, text, _| named(&mut options.sigalgs, text, names::signatures(text))),
    row("ssl-max-ver", 1, |options, text, _| set(&mut options.newest, version(text)?)),
    row("ssl-min-ver", 1, |options, text, _| oldest(options, text)),
];

static VERIFY: OptionRow = row("verify", 1, verify);

/// The row of a word.
pub(super) fn find(word: &str) -> Option<&'static OptionRow> {
    ROWS.iter().chain([&VERIFY]).find(|row| row.name == word)
}

/// All words, for guesses.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    ROWS.iter().chain([&VERIFY]).map(|row| row.name)
}

/// Puts a value into its field.
fn set<T>(field: &mut Option<T>, value: T) -> Result<ParameterNote, ParameterError> {
    *field = Some(value);
    Ok(ParameterNote::Nothing)
}

fn no_ca_names(options: &mut TlsOptions, _: &str, _: &FilePaths<'_>) -> Result<ParameterNote, ParameterError> {
    options.no_ca_names = true;
    Ok(ParameterNote::Nothing)
}

fn allow_0rtt(options: &mut TlsOptions, _: &str, _: &FilePaths<'_>) -> Result<ParameterNote, ParameterError> {
    options.allow_0rtt = true;
    Ok(ParameterNote::Notice("'allow-0rtt' has no effect: early data is never accepted".into()))
}

/// Longest name of a protocol (RFC 7301 3.1).
const PROTOCOL_MAX: usize = 255;

fn alpn(options: &mut TlsOptions, text: &str, _: &FilePaths<'_>) -> Result<ParameterNote, ParameterError> {
    let protocols = text.split(',').filter(|name| !name.is_empty());
    if protocols.clone().any(|name| name.len() > PROTOCOL_MAX) {
        return Err(ParameterError::new(format!("a protocol name has more than {PROTOCOL_MAX} bytes")));
    }
    set(&mut options.alpn, protocols.map(str::to_string).collect())
}

fn ecdhe(options: &mut TlsOptions, text: &str, _: &FilePaths<'_>) -> Result<ParameterNote, ParameterError> {
    if options.curves.is_some() {
        names::curves(text).map_err(fault)?;
        return Ok(ParameterNote::Notice("'ecdhe' has no effect beside 'curves'".into()));
    }
    named(&mut options.curves, text, names::curves(text))
}

fn verify(options: &mut TlsOptions, text: &str, _: &FilePaths<'_>) -> Result<ParameterNote, ParameterError> {
    let verify = match text {
        "none" => ClientVerify::None,
        "optional" => ClientVerify::Optional,
        "required" => ClientVerify::Required,
        _ => {
            let message = "unknown verify method, only 'none', 'optional', and 'required' are supported";
            let hint = suggestion(text, ["none", "optional", "required"]);
            return Err(ParameterError { message: format!("'{text}' : {message}"), hint });
        }
    };
    set(&mut options.verify, verify)
}

/// OpenSSL's names, kept as they are once they are known to mean something.
fn named<T>(
    field: &mut Option<String>,
    text: &str,
    names: Result<NameList<T>, NameError>,
) -> Result<ParameterNote, ParameterError> {
    let named = names.map_err(fault)?;
    *field = Some(text.into());
    Ok(match named.notes.is_empty() {
        true => ParameterNote::Nothing,
        false => ParameterNote::Warning(named.notes.join("; ")),
    })
}

fn fault(fault: NameError) -> ParameterError {
    ParameterError { message: fault.message, hint: fault.hint }
}

/// Why a version is refused.
pub(super) const TOO_OLD: &str = "is not supported: it is insecure (RFC 8996), use TLSv1.2 or TLSv1.3";

/// `ssl-min-ver`: an older version than the oldest one here is raised to it, as nothing is lost that a file could do without.
fn oldest(options: &mut TlsOptions, text: &str) -> Result<ParameterNote, ParameterError> {
    if is_too_old(text) {
        options.oldest = Some(TlsVersion::Tls12);
        return Ok(ParameterNote::Warning(format!("'ssl-min-ver {text}' {RAISED}")));
    }
    set(&mut options.oldest, version(text)?)
}

/// What becomes of a minimum version that is too old.
pub(in crate::keywords) const RAISED: &str =
    "is raised to TLSv1.2: older versions are insecure and not supported (RFC 8996)";

/// Whether OpenSSL knows this version and Baton does not speak it.
pub(in crate::keywords) fn is_too_old(version: &str) -> bool {
    matches!(version, "SSLv3" | "TLSv1.0" | "TLSv1.1")
}

fn version(text: &str) -> Result<TlsVersion, ParameterError> {
    match text {
        "TLSv1.2" => Ok(TlsVersion::Tls12),
        "TLSv1.3" => Ok(TlsVersion::Tls13),
        text if is_too_old(text) => {
            Err(ParameterError { message: format!("'{text}' {TOO_OLD}"), hint: Some("write TLSv1.2 instead".into()) })
        }
        _ => {
            let hint = suggestion(text, ["TLSv1.2", "TLSv1.3"]);
            Err(ParameterError { message: format!("'{text}' : unknown ssl/tls version"), hint })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keywords::tls::BaseDirectories;
    use crate::lower::DefaultPath;

    fn check(words: &str, expect: Result<(&str, ParameterNote), &str>) {
        let (name, value) = words.split_once(' ').unwrap_or((words, ""));
        let mut options = TlsOptions::default();
        let bases = BaseDirectories { crt: None, ca: Some("/ca".into()), key: None };
        let places = FilePaths { bases: &bases, base: &DefaultPath::Current, config: "a.cfg" };
        let row = find(name).expect("a word of the table");
        match ((row.apply)(&mut options, value, &places), expect) {
            (Ok(remark), Ok((field, expected))) => {
                assert_eq!(remark, expected, "{words}");
                let shown = format!("{options:?}");
                assert!(shown.contains(field), "{words}: {shown}");
            }
            (Err(fault), Err(expected)) => assert!(fault.message.contains(expected), "{words}: {}", fault.message),
            (got, expected) => panic!("{words}: {got:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn words_become_settings() {
        let nothing = || ParameterNote::Nothing;
        check("alpn http/1.1,foo", Ok((r#"alpn: Some(["http/1.1", "foo"])"#, nothing())));
        check("no-alpn", Ok(("alpn: Some([])", nothing())));
        check("ca-file x.pem", Ok((r#"ca_file: Some("/ca/x.pem")"#, nothing())));
        check("ca-file @system-ca", Ok((r#"ca_file: Some("@system-ca")"#, nothing())));
        check("crl-file /x.pem", Ok((r#"crl_file: Some("/x.pem")"#, nothing())));
        check("verify optional", Ok(("verify: Some(Optional)", nothing())));
        check("ssl-min-ver TLSv1.3", Ok(("oldest: Some(Tls13)", nothing())));
        check("ecdhe prime256v1", Ok((r#"curves: Some("prime256v1")"#, nothing())));
        check("verify maybe", Err("unknown verify method"));
        let raised = |version| ParameterNote::Warning(format!("'ssl-min-ver {version}' {RAISED}"));
        check("ssl-min-ver TLSv1.0", Ok(("oldest: Some(Tls12)", raised("TLSv1.0"))));
        check("ssl-min-ver SSLv3", Ok(("oldest: Some(Tls12)", raised("SSLv3"))));
        check("ssl-max-ver TLSv1.1", Err("RFC 8996"));
        check("ssl-max-ver TLSv2", Err("unknown ssl/tls version"));
        check("ciphers NOSUCH", Err("NOSUCH"));
    }
}
