"""Tests of packaging/split-symbols."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SPLIT = Path(__file__).resolve().parent.parent.parent / "packaging/split-symbols"
# A program that shows where it is.
SOURCE = """
#[inline(never)]
fn the_place_to_find() { eprintln!("{}", std::backtrace::Backtrace::force_capture()); }
fn main() { the_place_to_find(); }
"""


class Symbols(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "place.rs").write_text(SOURCE)
        # Like the profile `release` of the workspace.
        subprocess.run(
            ["rustc", "-O", "-C", "debuginfo=line-tables-only", "-C", "strip=none", "place.rs"], cwd=self.folder, check=True
        )
        self.program = self.folder / "place"
        self.debug = self.folder / "place.debug"

    def split(self):
        subprocess.run([SPLIT, self.program], check=True)

    def backtrace(self):
        done = subprocess.run([self.program], stderr=subprocess.PIPE, text=True, check=True)
        return done.stderr

    def test_a_backtrace_finds_the_symbols_beside_the_program(self):
        before = self.program.stat().st_size
        self.split()
        self.assertLess(self.program.stat().st_size, before / 4)
        self.assertEqual(sorted(os.listdir(self.folder)), ["place", "place.debug", "place.rs"])
        backtrace = self.backtrace()
        self.assertIn("the_place_to_find", backtrace)
        self.assertIn("place.rs:3", backtrace)
        self.debug.unlink()
        self.assertNotIn("the_place_to_find", self.backtrace())

    def test_the_second_time_nothing_changes(self):
        self.split()
        before = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in (self.program, self.debug)]
        self.split()
        self.assertEqual([(path.stat().st_ino, path.stat().st_mtime_ns) for path in (self.program, self.debug)], before)
        self.assertIn("the_place_to_find", self.backtrace())

    def test_another_name_of_the_program_keeps_its_symbols(self):
        other = self.folder / "other"
        os.link(self.program, other)
        before = other.stat().st_size
        self.split()
        self.assertEqual(other.stat().st_size, before)


if __name__ == "__main__":
    unittest.main()
