//! The `global` section's words about TLS with servers (configuration manual, 3.1).

use baton_model::{ServerTlsDefaults, TlsVersion};

use crate::lower::{Call, GlobalDraft};

/// `ssl-server-verify none|required`.
pub(crate) fn server_verify(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if !call.at_most(1) {
        return;
    }
    match call.arg(0) {
        "none" => global.model.tls.server_verify_none = true,
        "required" => global.model.tls.server_verify_none = false,
        _ => {
            let message = "'ssl-server-verify' expects 'none' or 'required' as argument.";
            call.not_one_of(0, message.into(), ["none", "required"]);
        }
    }
}

fn text(
    global: &mut GlobalDraft,
    call: &mut Call<'_, '_>,
    what: &str,
    field: fn(&mut ServerTlsDefaults) -> &mut Option<String>,
) {
    if call.arg(0).is_empty() {
        let message = format!("global statement '{}' expects {what} as an argument.", call.name);
        call.error(call.first, "missing-argument", message);
    } else if call.at_most(1) {
        *field(&mut global.model.tls.server_defaults) = Some(call.arg(0).into());
    }
}

/// `ssl-default-server-ciphers`.
pub(crate) fn ciphers(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    text(global, call, "a cipher suite", |defaults| &mut defaults.ciphers);
}

/// `ssl-default-server-ciphersuites`.
pub(crate) fn ciphersuites(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    text(global, call, "a cipher suite", |defaults| &mut defaults.ciphersuites);
}

/// `ssl-default-server-curves`.
pub(crate) fn curves(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    text(global, call, "a curves suite", |defaults| &mut defaults.curves);
}

/// `ssl-default-server-sigalgs`.
pub(crate) fn sigalgs(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    text(global, call, "a signature algorithm list", |defaults| &mut defaults.sigalgs);
}

const OPTIONS: [&str; 8] = [
    "no-sslv3",
    "no-tlsv12",
    "no-tlsv13",
    "force-tlsv12",
    "force-tlsv13",
    "no-tls-tickets",
    "ssl-min-ver",
    "ssl-max-ver",
];

/// `ssl-default-server-options`.
pub(crate) fn options(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if call.args() == 0 {
        let message = format!("global statement '{}' expects an option as an argument.", call.name);
        return call.error(call.first, "missing-argument", message);
    }
    let mut index = 0;
    while index < call.args() {
        let word = call.arg(index);
        let defaults = &mut global.model.tls.server_defaults;
        match word {
            "no-sslv3" | "no-tlsv10" | "no-tlsv11" => {}
            "no-tlsv12" => defaults.oldest = Some(TlsVersion::Tls13),
            "no-tlsv13" => defaults.newest = Some(TlsVersion::Tls12),
            "force-tlsv12" => (defaults.oldest, defaults.newest) = (Some(TlsVersion::Tls12), Some(TlsVersion::Tls12)),
            "force-tlsv13" => (defaults.oldest, defaults.newest) = (Some(TlsVersion::Tls13), Some(TlsVersion::Tls13)),
            "force-sslv3" | "force-tlsv10" | "force-tlsv11" => {
                let message = format!("'{word}' : {}.", super::TOO_OLD);
                return call.error(call.first + index, "old-tls", message);
            }
            "no-tls-tickets" => defaults.no_tickets = true,
            "ssl-min-ver" | "ssl-max-ver" => {
                index += 1;
                let on = format!(" on global statement '{}'.", call.name);
                if call.arg(index).is_empty() {
                    let message = format!("'{word}' : missing the ssl/tls version{on}");
                    return call.error(call.first + index, "missing-argument", message);
                }
                let read = if word == "ssl-min-ver" { super::oldest_version } else { super::version };
                let Some(version) = read(call, call.first + index) else { return };
                let defaults = &mut global.model.tls.server_defaults;
                match word {
                    "ssl-min-ver" => defaults.oldest = Some(version),
                    _ => defaults.newest = Some(version),
                }
            }
            odd => {
                let message = format!("unknown option '{odd}' on global statement '{}'.", call.name);
                return call.not_one_of(index, message, OPTIONS);
            }
        }
        index += 1;
    }
}
