"""Tests of scripts/audit."""

import importlib.machinery
import importlib.util
import tomllib
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent
loader = importlib.machinery.SourceFileLoader("audit", str(SCRIPTS / "audit"))
audit = importlib.util.module_from_spec(importlib.util.spec_from_loader("audit", loader))
loader.exec_module(audit)

RULES = tomllib.loads((SCRIPTS / "audit.toml").read_text())
ALLOWED = set(RULES["licences"]["allowed"])


def package(name="x", licence="MIT", source=audit.CRATES_IO):
    return {"name": name, "version": "1.0.0", "license": licence, "source": source}


class Licences(unittest.TestCase):
    def check(self, expression, expect):
        self.assertEqual(audit.licence_allowed(expression, ALLOWED), expect, expression)

    def test_single_licences(self):
        self.check("MIT", True)
        self.check("GPL-3.0-only", False)
        self.check("Apache-2.0+", False)

    def test_or_needs_one(self):
        self.check("MIT OR GPL-2.0-only", True)
        self.check("GPL-2.0-only OR MIT", True)
        self.check("GPL-2.0-only OR LGPL-2.1-or-later", False)

    def test_and_needs_both(self):
        self.check("MIT AND Unicode-3.0", True)
        self.check("MIT AND NCSA", False)
        self.check("NCSA AND MIT", False)

    def test_and_binds_tighter_than_or(self):
        self.check("MIT OR GPL-2.0-only AND NCSA", True)
        self.check("GPL-2.0-only AND NCSA OR MIT", True)
        self.check("(MIT OR GPL-2.0-only) AND NCSA", False)
        self.check("(MIT OR Apache-2.0) AND Unicode-3.0", True)
        self.check("((MIT))", True)

    def test_exceptions_belong_to_their_licence(self):
        self.check("Apache-2.0 WITH LLVM-exception", True)
        self.check("GPL-2.0-only WITH Classpath-exception-2.0", False)
        self.check("MIT WITH LLVM-exception", False)
        self.check("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only", True)

    def test_the_old_slash_means_or(self):
        self.check("MIT/Apache-2.0", True)
        self.check("GPL-2.0/MIT", True)
        self.check("GPL-2.0/LGPL-2.1", False)

    def test_broken_expressions_are_no_permission(self):
        for text in ["", "MIT OR", "OR MIT", "(MIT", "MIT)", "MIT Apache-2.0", "MIT WITH", "()", "AND"]:
            with self.subTest(text), self.assertRaises(audit.ExpressionError):
                audit.licence_allowed(text, ALLOWED)

    def test_findings(self):
        def findings(*packages):
            return list(audit.check_licences(packages, ALLOWED, "lock"))

        self.assertEqual(findings(package(), package(licence="MIT/Apache-2.0")), [])
        self.assertEqual(findings(package(licence=None, source=None)), [])
        self.assertEqual(len(findings(package(licence=None), package(licence="SSPL-1.0"), package(licence="MIT ("))), 3)


class Dependencies(unittest.TestCase):
    def test_sources(self):
        git = package(source="git+https://example.org/x")
        self.assertEqual(list(audit.check_sources([package(), package(source=None)], "lock")), [])
        self.assertEqual(len(list(audit.check_sources([git], "lock"))), 1)

    def check_duplicates(self, tree, accepted, expect):
        found = list(audit.check_duplicates(tree, accepted, "lock"))
        self.assertEqual(len(found), expect, found)

    def test_duplicates(self):
        twice = ["syn v2.0.1", "syn v3.0.0 (proc-macro)", ""]
        self.check_duplicates(["syn v2.0.1", "syn v2.0.1 (*)"], {}, 0)
        self.check_duplicates(twice, {}, 1)
        self.check_duplicates(twice, {"syn": "two derive crates are not there yet"}, 0)
        self.check_duplicates(twice, {"syn": " "}, 1)

    def test_an_accepted_duplicate_that_is_none_is_told(self):
        self.check_duplicates([], {"syn": "reason"}, 1)


class Files(unittest.TestCase):
    def check_unsafe(self, path, text, expect):
        found = list(audit.check_unsafe([(path, text)], "crates/k"))
        self.assertEqual(len(found), expect, found)

    def test_unsafe_code_has_one_home(self):
        for attribute in ["#![allow(unsafe_code)]", "#[expect(unsafe_code, reason = \"x\")]", "#[allow(dead_code,\nunsafe_code)]"]:
            self.check_unsafe("crates/a/src/lib.rs", attribute, 1)
            self.check_unsafe("crates/k/src/lib.rs", attribute, 0)
            self.check_unsafe("crates/k2/src/lib.rs", attribute, 1)
        self.check_unsafe("crates/a/src/lib.rs", "#![forbid(unsafe_code)] #[allow(dead_code)]", 0)

    def test_crates_keep_the_lints(self):
        self.assertEqual(list(audit.check_lints([("a", "[lints]\nworkspace = true\n")])), [])
        for text in ["", "[lints.rust]\nunsafe_code = 'allow'\n", "[lints]\nworkspace = false\n"]:
            self.assertEqual(len(list(audit.check_lints([("a", text)]))), 1)

    def check_paths(self, text, expect):
        found = list(audit.check_paths([("a", text)], RULES["paths"]["patterns"], {}))
        self.assertEqual(bool(found), expect, f"{text!r}: {found}")

    def test_paths_of_one_machine(self):
        for text in [
            "see /work" "/main/x", "(/root/.cargo)", "/home/jane/src", "'/Users/Jane'",
            "/tmp/target-mine", "http://127.0.0.1:3000/crates", "nexus.corp.example",
        ]:
            self.check_paths(text, True)
        for text in [
            "errors/homes", "/var/lib/haproxy", "/home page", "a/work" "/b", "bind 127.0.0.1:80",
            "network/work", "http://127.0.0.1:8000/index.html and 10.0.0.1:80", "/tmp/haproxy.sock",
        ]:
            self.check_paths(text, False)

    def test_a_finding_names_its_line(self):
        found = list(audit.check_paths([("a.md", "one\ntwo /root/x\n")], RULES["paths"]["patterns"], {}))
        self.assertTrue(found[0].startswith("a.md:2: "), found)
        self.assertEqual(list(audit.check_paths([("a.md", "/root/x")], RULES["paths"]["patterns"], {"a.md": "why"})), [])


class Comments(unittest.TestCase):
    def check(self, text, lines, path="crates/x/src/a.rs"):
        found = [finding.split(":")[1] for finding in audit.check_comments([(path, text)])]
        self.assertEqual(found, lines, text)

    def test_one_that_points_to_another_is_found(self):
        self.check("/// The same for IPv6.\nfn six() {}\n", ["1"])
        self.check("fn four() {}\n\n    // As above.\n    let x = 1;\n//! See b.rs.\n", ["3", "5"])

    def test_only_its_first_line_counts(self):
        self.check("/// A name means\n/// The same everywhere.\n", [])

    def test_words_that_only_begin_alike_and_other_files_are_left_alone(self):
        self.check("// Seen by clients.\nlet text = \"// See\";\n", [])
        self.check("// The same\n", [], path="docs/a.md")


if __name__ == "__main__":
    unittest.main()
