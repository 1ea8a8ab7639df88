"""Tests of scripts/words.py."""

import sys
import tomllib
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SCRIPTS))

import words

RULES = {"phrase": [{"phrase": "does not do yet", "instead": "'not supported yet'"}, {"phrase": "odd input", "instead": "x"}]}

SOURCE = r"""//! Not shown: odd input.
const A: &str = "fine";
/// Not shown: odd input.
fn a(quote: char) {
    if quote == '"' || quote == '\\'' { /* odd input */ return; }
    say("it \"does\" so, but does not \
         do yet: {odd}", r#"raw "quotes" and odd input"#);
    let text = "does not"; let other = "do yet"; // does not do yet
}

#[cfg(test)]
mod tests {
    const B: &str = "odd input";
}
"""

HELP = """/// Not shown: odd input.
struct Other;

/// About the verb, which does not do
/// yet what it should.
#[derive(clap::Args, Debug)]
#[command(about = "odd input")]
pub struct Verb {
    /// One argument: odd input.
    #[arg(long)]
    a: bool,
}
"""


class Words(unittest.TestCase):
    def check(self, path, text, expect, rules=RULES):
        found = list(words.check_words([(path, text)], rules))
        self.assertEqual([finding.split(": ")[0].rsplit(":", 1)[-1] for finding in found], expect, found)
        return found

    def test_strings_are_read_and_code_and_tests_are_not(self):
        found = self.check("crates/a/src/a.rs", SOURCE, ["6", "7"])
        self.assertEqual(
            found[0],
            "crates/a/src/a.rs:6: 'does not do yet' is not how users say it: write 'not supported yet'",
        )
        for path in ["crates/a/tests/a.rs", "crates/a/src/a/tests.rs", "crates/a/src/tests/a.rs", "bench/a.rs", "a.toml"]:
            self.check(path, SOURCE, [])

    def test_help_of_arguments_is_read(self):
        self.check("crates/a/src/verb.rs", HELP, ["7", "4", "9"])

    def test_documents_are_read_across_lines(self):
        self.check("docs/a.md", "What it does\nnot do yet.\n\n> does not\n> do yet\n", ["1", "4"])
        self.check("packaging/a.8", "Odd input", ["1"])
        self.check("docs/a.md", "it does, not yet; an odd inputs", ["1"])

    def test_exceptions_need_a_reason_and_a_use(self):
        exempt = {**RULES, "exempt": {"docs/glossary.md": "lists them", "docs/a.md": " "}}
        self.check("docs/glossary.md", "odd input", [], exempt)
        self.check("docs/a.md", "odd input", ["1"], exempt)

        def accepted(reason):
            return {**RULES, "accepted": [{"file": "docs/a.md", "phrase": "odd input", "reason": reason}]}

        self.check("docs/a.md", "odd input", [], accepted("quoted"))
        self.assertEqual(len(list(words.check_words([("docs/a.md", "odd input")], accepted("")))), 2)
        unused = list(words.check_words([("docs/a.md", "fine")], accepted("quoted")))
        self.assertTrue(len(unused) == 1 and "remove its entry" in unused[0], unused)


class List(unittest.TestCase):
    """The project's own list."""

    RULES = tomllib.loads((SCRIPTS / "words.toml").read_text())

    def test_a_phrase_that_is_put_in_is_found(self):
        for text in [
            "keyword 'x' is known to HAProxy but Baton does not do it yet",
            "'junk' is no process number",
            "disturbs: nobody in flight",
            "a setting that a process has for its whole life",
            "Let servers answer by themselves",
            "Ask a server as fast or as often as wanted",
            "user 65534 may not ask this process",
            "it begins anew",
        ]:
            with self.subTest(text):
                self.assertTrue(list(words.check_words([("crates/a/src/a.rs", f'say("{text}");')], self.RULES)))

    def test_plain_english_is_not(self):
        for text in [
            "there is no address",
            "'junk' is not a PID",
            "HTTP/2 is not supported yet",
            "what it does not do: yet another list",
            "in-flight requests finish",
        ]:
            with self.subTest(text):
                self.assertEqual(list(words.check_words([("docs/a.md", text)], self.RULES)), [])

    def test_every_exception_has_a_reason(self):
        reasons = list(self.RULES.get("exempt", {}).values())
        reasons += [row["reason"] for row in self.RULES.get("accepted", [])]
        self.assertTrue(all(reason.strip() for reason in reasons))
        self.assertTrue(all(row["phrase"] and row["instead"] for row in self.RULES["phrase"]))


if __name__ == "__main__":
    unittest.main()
