//! `cookie` (configuration manual, 4.2).

use baton_model::{Cookie, CookieMode};

use crate::lower::{Call, Draft};
use crate::values::Unit;

const OPTIONS: [&str; 14] = [
    "rewrite", "insert", "prefix", "indirect", "nocache", "postonly", "preserve", "httponly", "secure", "domain",
    "maxidle", "dynamic", "maxlife", "attr",
];

pub(crate) fn cookie(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.arg(0).is_empty() {
        return call.expects(0, "<cookie_name> as argument");
    }
    let mut cookie = Cookie {
        name: call.arg(0).into(),
        mode: CookieMode::Passive,
        indirect: false,
        nocache: false,
        postonly: false,
        preserve: false,
        httponly: false,
        secure: false,
        domains: Vec::new(),
        max_idle: None,
        max_life: None,
        dynamic_key: None,
        attributes: Vec::new(),
    };
    let mut modes = 0;
    let mut dynamic = false;
    let mut index = 1;
    while index < call.args() {
        match call.arg(index) {
            "rewrite" => (cookie.mode, modes) = (CookieMode::Rewrite, modes + 1),
            "insert" => (cookie.mode, modes) = (CookieMode::Insert, modes + 1),
            "prefix" => (cookie.mode, modes) = (CookieMode::Prefix, modes + 1),
            "indirect" => cookie.indirect = true,
            "nocache" => cookie.nocache = true,
            "postonly" => cookie.postonly = true,
            "preserve" => cookie.preserve = true,
            "httponly" => cookie.httponly = true,
            "secure" => cookie.secure = true,
            "dynamic" => dynamic = true,
            "domain" => {
                index += 1;
                let domain = call.arg(index);
                if domain.is_empty() {
                    return call.wrong(index, "'domain' expects <domain> as argument.".into());
                }
                if !domain.get(1..).is_some_and(|rest| rest.contains('.')) {
                    let message = format!(
                        "domain '{domain}' contains no embedded dot, this configuration may not work properly \
                         (see RFC6265#5.2.3)."
                    );
                    call.warn(call.first + index, "odd-domain", message);
                }
                cookie.domains.push(domain.into());
            }
            word @ ("maxidle" | "maxlife") => {
                index += 1;
                if call.arg(index).is_empty() {
                    return call.wrong(index, format!("'{word}' expects a time in seconds as argument."));
                }
                let Some(time) = call.time_at(call.first + index, word, Unit::Seconds) else { return };
                *(if word == "maxidle" { &mut cookie.max_idle } else { &mut cookie.max_life }) = Some(time);
            }
            "attr" => {
                index += 1;
                let attribute = call.arg(index);
                if attribute.is_empty() {
                    return call.wrong(index, "'attr' expects <value> as argument.".into());
                }
                if let Some(odd) = attribute.chars().find(|char| char.is_control() || *char == ';') {
                    let message = format!("character '%x{:02X}' is not permitted in attribute value.", odd as u32);
                    return call.wrong(index, message);
                }
                cookie.attributes.push(attribute.into());
            }
            _ => {
                let message = "'cookie' supports 'rewrite', 'insert', 'prefix', 'indirect', 'nocache', 'postonly', \
                               'preserve', 'httponly', 'secure', 'domain', 'maxidle', 'dynamic', 'maxlife' and \
                               'attr' options.";
                return call.not_one_of(index, message.into(), OPTIONS);
            }
        }
        index += 1;
    }
    if modes > 1 {
        let message = "cookie 'rewrite', 'insert' and 'prefix' modes are incompatible.";
        return call.error(call.first, "bad-value", message.into());
    }
    if cookie.mode == CookieMode::Rewrite && cookie.indirect {
        let message = "cookie 'rewrite' and 'indirect' modes are incompatible.";
        return call.error(call.first, "bad-value", message.into());
    }
    draft.cookie_dynamic = dynamic;
    draft.proxy.cookie = Some(cookie);
}
