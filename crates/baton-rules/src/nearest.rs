//! "did you mean": the known name that somebody probably meant, for keywords and for values alike.

/// The hint for a name that is not known: the nearest known one, if one is near enough to be worth naming.
pub fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(name, known).map(|near| format!("did you mean '{near}'?"))
}

/// The known name nearest to `name`, if one is near enough to be a typing error. Upper and lower case are alike.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Longer names are no typing errors, and comparing them costs time; so does comparing with very many.
    const LONGEST: usize = 64;
    const MOST: usize = 1000;
    if name.is_empty() || name.len() > LONGEST {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let allowed = |candidate: &str| (name.len().max(candidate.len()) / 3).max(1);
    known
        .into_iter()
        .take(MOST)
        .filter(|candidate| name.len().abs_diff(candidate.len()) <= allowed(candidate))
        .map(|candidate| (strsim::osa_distance(&name, &candidate.to_ascii_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= allowed(candidate))
        // Of several as near the first in the alphabet: the names may come from a map, whose order differs each time.
        .min_by_key(|(distance, candidate)| (*distance, *candidate))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expect: Option<&str>) {
        assert_eq!(nearest(name, ["balance", "bind", "backlog", "tfo", "TRUE"]), expect, "{name}");
    }

    #[test]
    fn near_names_only() {
        check("blance", Some("balance"));
        check("bnid", Some("bind"));
        check("tof", Some("tfo"));
        check("BIND", Some("bind"));
        check("treu", Some("TRUE"));
        check("zzz", None);
        check("", None);
        check(&"b".repeat(65), None);
    }

    #[test]
    fn of_two_as_near_it_is_always_the_same() {
        assert_eq!(nearest("s1", ["s4", "s3"]), Some("s3"));
        assert_eq!(nearest("s1", ["s3", "s4"]), Some("s3"));
    }

    #[test]
    fn a_suggestion_is_a_question() {
        assert_eq!(suggestion("htp", ["tcp", "http"]).as_deref(), Some("did you mean 'http'?"));
        assert_eq!(suggestion("smtp", ["tcp"]), None);
    }
}
