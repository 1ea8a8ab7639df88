//! The word somebody probably meant.

/// The candidate nearest to `word`, if one is near enough to be worth naming.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Longer words are no typing errors, and comparing them costs time; so does comparing with very many.
    const LONGEST: usize = 64;
    const MOST: usize = 1000;
    if word.is_empty() || word.len() > LONGEST {
        return None;
    }
    let allowed = |candidate: &str| (word.len().max(candidate.len()) / 3).max(1);
    candidates
        .take(MOST)
        .filter(|candidate| word.len().abs_diff(candidate.len()) <= allowed(candidate))
        .map(|candidate| (strsim::osa_distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= allowed(candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(word: &str, expect: Option<&str>) {
        assert_eq!(nearest(word, ["balance", "bind", "backlog", "tfo"].into_iter()), expect, "{word}");
    }

    #[test]
    fn near_words_only() {
        check("blance", Some("balance"));
        check("bnid", Some("bind"));
        check("tof", Some("tfo"));
        check("zzz", None);
        check("", None);
    }
}
