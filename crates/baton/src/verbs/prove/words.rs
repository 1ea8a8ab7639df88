//! The words of a load: those of `baton load`.

use baton_prove::LoadOptions;

use crate::verbs::load::Plan;

/// What the words ask for.
///
/// # Errors
/// A sentence: which word is wrong.
pub fn options(words: &str) -> Result<LoadOptions, String> {
    let plan = Plan::parse(words)?;
    match (plan.load, plan.sessions.is_empty()) {
        (Some(load), true) => Ok(load),
        _ => Err("an experiment counts requests; ws:// and tcp:// URLs are not supported".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_what_the_verb_makes_of_it() {
        let load = options("-k -c 7 -n 100 'http://127.0.0.1:8080/a'").expect("it is one");
        assert_eq!((load.keep_alive, load.concurrency, load.count), (true, 7, Some(100)));
        assert!(options("tcp://127.0.0.1:1").expect_err("not requests").contains("not supported"));
        assert!(options("-c").is_err() && options("").is_err());
    }
}
