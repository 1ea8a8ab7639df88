//! Names that can be looked up.

use std::fmt;
use std::sync::Arc;

/// The longest name, without the dot of the root.
const NAME_MAX: usize = 253;
/// The longest label.
const LABEL_MAX: usize = 63;

/// A name in small letters, without the dot of the root.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DomainName(Arc<str>);

impl DomainName {
    /// A name as it is written; `None`: it is none, such as an address, or an empty label.
    pub fn parse(text: &str) -> Option<DomainName> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            (1..=LABEL_MAX).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        let is_name = text.len() <= NAME_MAX && text.split('.').all(is_label);
        is_name.then(|| DomainName(text.to_ascii_lowercase().into()))
    }

    /// It as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// It, shared.
    pub fn shared(&self) -> &Arc<str> {
        &self.0
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let check = |text: &str, expect: Option<&str>| {
            assert_eq!(DomainName::parse(text).as_ref().map(DomainName::as_str), expect, "{text:?}");
        };
        check("App.Example.", Some("app.example"));
        check("_http._tcp.example", Some("_http._tcp.example"));
        check("localhost", Some("localhost"));
        check("", None);
        check(".", None);
        check("a..b", None);
        check("a b", None);
        check("a\r\nb", None);
        check("a\0", None);
        check("::1", None);
        check(&"a".repeat(64), None);
        check(&format!("{}a", "a.".repeat(127)), None);
        check(&format!("{}a", "a.".repeat(126)), Some(&format!("{}a", "a.".repeat(126))));
    }
}
