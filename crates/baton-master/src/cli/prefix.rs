//! `@1`, `@!1271`, `@master`, `@`: whom a command is for.

/// Whom a command is for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Target {
    /// `@`, `@master` or no prefix.
    #[default]
    Master,
    /// `@1`: the worker that serves. There is one, so higher numbers lead to nobody.
    Relative(u32),
    /// `@!PID`: a worker, also one that leaves.
    Pid(i32),
    /// `@` and something else.
    Nobody,
}

impl Target {
    /// From a word; `None` without `@`.
    pub fn of(word: &str) -> Option<Target> {
        let name = word.strip_prefix('@')?;
        Some(match name.strip_prefix('!') {
            Some(pid) => pid.parse().map_or(Target::Nobody, Target::Pid),
            None if name.is_empty() || name == "master" => Target::Master,
            None => name.parse().map_or(Target::Nobody, Target::Relative),
        })
    }
}

/// Words as a line that is taken apart into the same words again.
pub fn join(words: &[String]) -> String {
    let mut line = String::new();
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        for c in word.chars() {
            if matches!(c, ' ' | '\t' | ';' | '\\') {
                line.push('\\');
            }
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_control::operators::line;

    #[test]
    fn prefixes_name_processes() {
        let check = |word: &str, expect| assert_eq!(Target::of(word), expect, "{word}");
        check("show", None);
        check("@", Some(Target::Master));
        check("@master", Some(Target::Master));
        check("@1", Some(Target::Relative(1)));
        check("@!1271", Some(Target::Pid(1271)));
        check("@x", Some(Target::Nobody));
        check("@!x", Some(Target::Nobody));
    }

    #[test]
    fn joined_words_are_the_same_words() {
        let words = ["set", "a b;c\\d", "x"].map(str::to_owned).to_vec();
        assert_eq!(line::commands(join(&words).as_bytes()), Some(vec![words]));
    }
}
