"""Tests of scripts/programs."""

import importlib.machinery
import importlib.util
import io
import json
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent
loader = importlib.machinery.SourceFileLoader("programs", str(SCRIPTS / "programs"))
programs = importlib.util.module_from_spec(importlib.util.spec_from_loader("programs", loader))
loader.exec_module(programs)


def artifact(**changes):
    message = {
        "reason": "compiler-artifact",
        "executable": "/t/deps/runtime-1",
        "manifest_path": "/w/crates/baton/Cargo.toml",
        "target": {"name": "runtime"},
        "profile": {"test": True},
    }
    return json.dumps({**message, **changes})


class Cargo(unittest.TestCase):
    def test_a_test_program_runs_in_the_folder_of_its_package(self):
        found = programs.program_of(artifact())
        self.assertEqual(found, programs.Program("runtime", "/t/deps/runtime-1", Path("/w/crates/baton")))

    def test_other_messages_name_no_test_program(self):
        for line in [
            artifact(executable=None),
            artifact(profile={"test": False}),
            json.dumps({"reason": "build-finished", "success": True}),
        ]:
            self.assertIsNone(programs.program_of(line), line)

    def test_the_longest_begin_first(self):
        names = [programs.Program(name, "", Path()) for name in ("process", "runtime", "differential")]
        self.assertEqual([program.name for program in sorted(names, key=programs.rank)], ["differential", "runtime", "process"])


class Runs(unittest.TestCase):
    def run_all(self, *paths):
        shown = io.StringIO()
        with redirect_stdout(shown):
            failed = programs.run_all([programs.Program(Path(path).name, path, Path("/usr")) for path in paths], 2)
        return failed, shown.getvalue()

    def test_what_a_program_prints_is_shown_and_it_starts_in_its_folder(self):
        failed, shown = self.run_all("/bin/pwd")
        self.assertEqual(failed, [])
        self.assertIn("/usr\n--- 1/1 usr/pwd: ok, 0 s, CPU 0 s", shown)

    def test_cpu_time_is_that_of_a_program_and_of_what_it_started(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program"
            program.write_text("#!/bin/sh\nsh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done'\ntrue\n")
            program.chmod(0o755)
            code, _, _, cpu = programs.run(programs.Program("program", str(program), Path(folder)))
        self.assertEqual(code, 0)
        self.assertGreater(cpu, 0.02)

    def test_a_program_that_fails_is_named_and_the_others_run(self):
        failed, shown = self.run_all("/bin/false", "/bin/true")
        self.assertEqual(failed, ["usr/false"])
        self.assertIn("usr/false: FAILED (1)", shown)
        self.assertIn("usr/true: ok", shown)


if __name__ == "__main__":
    unittest.main()
