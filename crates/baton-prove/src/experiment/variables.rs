//! Variables in the texts of an experiment: `{{name}}`, a form that no shell, haproxy.cfg or nginx.conf has.

/// Every name that may stand between the braces.
pub(crate) const NAMES: [&str; 13] = [
    "web",
    "port",
    "port2",
    "tls",
    "origin",
    "origin2",
    "echo",
    "dir",
    "baton",
    "start",
    "n",
    "certificate",
    "authority",
];

/// Puts in values; `of` gives them. What is no variable stays as it is.
pub(crate) fn fill(text: &str, of: &dyn Fn(&str) -> Option<String>) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        filled += before;
        let value = after.split_once("}}").and_then(|(name, behind)| Some((of(name)?, behind)));
        rest = match value {
            Some((value, behind)) => {
                filled += &value;
                behind
            }
            None => {
                filled += "{{";
                after
            }
        };
    }
    filled + rest
}

/// The first thing in double braces that looks like a variable and is none.
pub(crate) fn unknown(text: &str) -> Option<String> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("{{") {
        rest = after;
        let Some((name, _)) = after.split_once("}}") else { continue };
        let is_word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if is_word && !NAMES.contains(&name) {
            return Some(format!("{{{{{name}}}}}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_put_in() {
        let of = |name: &str| (name == "port").then(|| "80".to_owned());
        let check = |text: &str, expect: &str| assert_eq!(fill(text, &of), expect);
        check("a {{port}}{{port}} b", "a 8080 b");
        check("{{other}} {{{port}}", "{{other}} {{{port}}");
        check("{{ {{port}}", "{{ 80");
        check("$x {} {{", "$x {} {{");
    }

    #[test]
    fn a_wrong_name_is_found() {
        let check = |text: &str, expect: Option<&str>| assert_eq!(unknown(text).as_deref(), expect);
        check("{{port}} {{web}}", None);
        check("{{port}} {{prot}}", Some("{{prot}}"));
        check("a = {{'x': 1}}", None);
        check("{{", None);
    }
}
