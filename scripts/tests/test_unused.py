"""Tests of scripts/unused.py, on a workspace of its own with two crates."""

import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import unused

MODEL = """//! A model.
pub struct Server {
    /// Read by an expression.
    pub address: u16,
    /// Read by a pattern.
    pub weight: u8,
    /// Planted: only written.
    pub planted: bool,
    /// Planted: named by patterns that throw it away.
    pub ignored: bool,
    /// Named like one that is read.
    pub tfo: bool,
}

pub struct Bind {
    pub tfo: bool,
}

pub struct Own {
    pub(crate) hidden: bool,
}

impl Server {
    pub fn new() -> Server {
        Server { address: 0, weight: 0, planted: false, ignored: false, tfo: false }
    }

}

impl Own {
    pub fn hides() -> bool {
        Own { hidden: true }.hidden
    }
}
"""

PROGRAM = """
use model::{Bind, Server};

fn weight(Server { weight, ignored: _, .. }: &Server) -> u8 {
    *weight
}

fn main() {
    let mut server = Server::new();
    server.planted = true;
    server = Server { planted: false, ..server };
    println!("{} {} {} {}", server
        .address, weight(&server), Bind { tfo: true }.tfo, model::Own::hides());
}
"""

RULES = {
    "model": "crates/model",
    "program": "program",
    "without": [],
    "without_files": [],
    "accepted": {},
}


class Fields(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.write("Cargo.toml", '[workspace]\nresolver = "3"\nmembers = ["crates/*"]\n')
        for name, dependencies, file, text in [
            ("model", "", "lib.rs", MODEL),
            ("program", 'model = { path = "../model" }\n', "main.rs", PROGRAM),
        ]:
            package = f'[package]\nname = "{name}"\nversion = "0.0.0"\nedition = "2024"\n'
            self.write(f"crates/{name}/Cargo.toml", f"{package}[dependencies]\n{dependencies}")
            self.write(f"crates/{name}/src/{file}", text)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def check(self, accepted, expect):
        paths = [str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()]
        paths = [path for path in paths if not path.startswith("target/")]
        found = list(unused.check_fields(self.root, paths, {**RULES, "accepted": accepted}))
        self.assertEqual([finding.split(": ")[:2] for finding in found], expect)

    def test_what_nobody_reads_is_found_by_its_type(self):
        what = "it is in the model, and nobody reads it"
        planted = [[f"Server::{name}", what] for name in ("planted", "ignored", "tfo")]
        self.check({}, planted)
        self.check({"Server::ignored": "a reason", "Server::tfo": "another"}, planted[:1])
        self.check({"Server::planted": " "}, planted)
        not_needed = ["scripts/audit.toml", "Server::weight needs no exception any more"]
        self.check({"Server::weight": "was not read once"}, [*planted, not_needed])
        # Used from now on: only what changed is checked again.
        self.write("crates/program/src/main.rs", PROGRAM.replace("model::Own::hides()", "server.planted | server.tfo"))
        self.check({}, planted[1:2])

    def test_uses_of_crates_that_do_not_count_are_none(self):
        text = MODEL.replace("    pub fn new", "    pub fn tfo(&self) -> bool { self.tfo }\n    pub fn new")
        self.write("crates/model/src/lib.rs", text)
        rules = {**RULES, "without": ["program"]}
        paths = ["Cargo.toml", *[f"crates/{name}/{file}" for name, file in
                 [("model", "Cargo.toml"), ("model", "src/lib.rs"), ("program", "Cargo.toml"), ("program", "src/main.rs")]]]
        found = [finding.split(": ")[0] for finding in unused.check_fields(self.root, paths, rules)]
        self.assertEqual(found, ["Server::address", "Server::weight", "Server::planted", "Server::ignored", "Bind::tfo"])


class Reads(unittest.TestCase):
    def check(self, text, expect):
        begin, end = text.index("<"), text.index(">") - 1
        plain = text.replace("<", "", 1).replace(">", "", 1)
        self.assertEqual(unused.is_read(plain, begin, end), expect, text)

    def test_values_and_assignments(self):
        self.check("let x = <a.b>;", True)
        self.check("if <a.b> == 1 {}", True)
        self.check("match <a.b> { x => {} }", True)
        self.check("<a.b> = 1;", False)
        self.check("<a.b> |= true;", False)
        self.check("<a\n    .b>.push(1);", True)

    def test_patterns_and_structures(self):
        self.check("let A { <b>, c } = a;", True)
        self.check("let A { c: D { x }, <b: e>, .. } = a;", True)
        self.check("match a { A { <b>, .. } => b }", True)
        self.check("fn f(A { <b>, .. }: &A) {}", True)
        self.check("let A { <b: _>, .. } = a;", False)
        self.check("let a = A { <b>, c };", False)
        self.check("let a = A { <b: 1>, c: C { d } };", False)


class Counters(unittest.TestCase):
    STATE = "pub enum Counter {\n    /// One.\n    Sessions,\n    /// Two.\n    Lost,\n    Hidden,\n}\n"
    RULES = {"counters": "p/src/state.rs", "adds": "p/src/", "shows": "c/src/", "accepted": {}}

    def check(self, adds, shows, accepted, expect):
        files = [("p/src/state.rs", self.STATE), ("p/src/a.rs", adds), ("c/src/b.rs", shows)]
        found = unused.check_counters(files, {**self.RULES, "accepted": accepted})
        self.assertEqual([finding.split(": ", 1)[1] for finding in found], expect)

    def test_what_nobody_adds_to_or_shows_is_found(self):
        all_ = "Counter::Sessions Counter::Lost Counter::Hidden"
        self.check(all_, all_, {}, [])
        lost = "Counter::Sessions Counter::Hidden\n#[cfg(test)]\nmod tests {\nCounter::Lost"
        self.check(lost, all_, {}, ["Counter::Lost: nobody adds to it"])
        self.check(lost, all_, {"Lost": "a reason"}, [])
        self.check(all_, "Counter::Sessions Counter::Lost", {}, ["Counter::Hidden: nobody shows it"])
        needless = ["Counter::Lost needs no exception any more: remove its line"]
        self.check(all_, all_, {"Lost": "a reason"}, needless)


class Marks(unittest.TestCase):
    def test_only_public_fields_are_marked(self):
        text, fields = unused.mark(MODEL)
        self.assertEqual(fields[:2] + fields[-1:], ["Server::address", "Server::weight", "Bind::tfo"])
        self.assertEqual(text.count("#[deprecated"), len(fields))

    def test_other_messages_are_left_alone(self):
        lines = [json.dumps({"reason": "build-finished"})]
        self.assertEqual(unused.reads(lines, ".", lambda *_: True), set())


if __name__ == "__main__":
    unittest.main()
