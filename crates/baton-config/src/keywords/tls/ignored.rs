//! `ca-ignore-err` and `crt-ignore-err`: faults of certificates by OpenSSL's numbers, or by their names as from HAProxy 2.9 on.

use baton_model::IgnoredErrors;
use baton_rules::nearest;
use baton_tls::{ERROR_NAMES, ERROR_PREFIX};

use super::ParameterError;

/// Reads `all`, or numbers and names with commas between them.
pub(super) fn parse(text: &str) -> Result<IgnoredErrors, ParameterError> {
    if text == "all" {
        return Ok(IgnoredErrors::All);
    }
    let highest = ERROR_NAMES.len() as u32;
    let mut list = Vec::new();
    for word in text.split(',') {
        let number = match word.strip_prefix(ERROR_PREFIX) {
            Some(name) => ERROR_NAMES.iter().zip(1..).find(|(known, _)| **known == name).map(|(_, number)| number),
            None => word.parse().ok().filter(|number| (1..=highest).contains(number)),
        };
        match number {
            Some(number) if list.contains(&number) => {}
            Some(number) => list.push(number),
            None => {
                let message = format!(
                    "'{word}' is neither an error's number (1..{highest}) nor its name (X509_V_ERR_…) in error IDs list \
                     '{text}'"
                );
                let near = nearest(word.strip_prefix(ERROR_PREFIX).unwrap_or(word), ERROR_NAMES);
                let hint = near.map(|near| format!("did you mean '{ERROR_PREFIX}{near}'?"));
                return Err(ParameterError { message, hint });
            }
        }
    }
    Ok(IgnoredErrors::These(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names() {
        assert_eq!(parse("all"), Ok(IgnoredErrors::All));
        assert_eq!(parse("10,18,10"), Ok(IgnoredErrors::These(vec![10, 18])));
        assert_eq!(parse("X509_V_ERR_CERT_HAS_EXPIRED,3"), Ok(IgnoredErrors::These(vec![10, 3])));
        for wrong in ["", "0", "95", "10,", "foo", "X509_V_ERR_FOO", "-1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
