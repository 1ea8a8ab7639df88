"""Tests of what bench/run makes of its samples."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import measure
import report
import world


def sample(proxy, turn, user, system=0.0):
    return {"proxy": proxy, "round": turn, "user": user, "system": system, "errors": 0}


class Ratios(unittest.TestCase):
    def test_only_samples_of_one_round_are_compared(self):
        samples = [sample("Baton", 0, 1), sample("haproxy", 0, 2), sample("Baton", 1, 8), sample("haproxy", 1, 10)]
        self.assertEqual(report.ratios(samples, "haproxy", report.total), [0.5, 0.8])

    def test_a_round_without_its_pair_is_left_out(self):
        samples = [sample("Baton", 0, 1), sample("haproxy", 1, 2), sample("nginx", 0, 0)]
        self.assertEqual(report.ratios(samples, "haproxy", report.total), [])
        self.assertEqual(report.ratios(samples, "nginx", report.total), [])

    def test_text(self):
        self.assertEqual(report.ratio_text([]), "-")
        self.assertEqual(report.ratio_text([0.5]), "0.50")
        self.assertEqual(report.ratio_text([0.7, 0.9, 0.8]), "0.80 (0.70-0.90)")


class Tables(unittest.TestCase):
    def test_cpu(self):
        samples = [sample("haproxy", 0, 4, 6), sample("Baton", 0, 2, 6), sample("nginx", 0, 3, 7)]
        table = report.tables({"keep-alive": samples, "tcp": samples[:2]}).splitlines()
        self.assertEqual(len(table), 4)
        self.assertEqual(
            table[2], "| keep-alive | 8.0 (2.0 + 6.0) | 10.0 (4.0 + 6.0) | 10.0 (3.0 + 7.0) | 0.80 | 0.80 |"
        )
        self.assertEqual(table[3], "| tcp | 8.0 (2.0 + 6.0) | 10.0 (4.0 + 6.0) | - | 0.80 | - |")

    def test_floor(self):
        samples = [sample("haproxy", 0, 10), sample("Baton", 0, 8), sample("floor", 0, 4), sample("haproxy", 1, 8)]
        table = report.tables({"keep-alive": samples}).splitlines()
        self.assertTrue(table[0].endswith("| Baton / floor | Baton / haproxy | floor / haproxy |"), table[0])
        self.assertTrue(table[2].endswith("| 2.00 | 0.80 | 0.40 |"), table[2])

    def test_memory(self):
        samples = [
            {"proxy": "Baton", "round": 0, "bytes": 1024.0},
            {"proxy": "nginx", "round": 0, "bytes": 2048.0},
        ]
        table = report.tables({measure.MEMORY: samples})
        self.assertIn("| 1.00 KiB | 2.00 KiB | 0.50 |", table)

    def test_nothing_measured(self):
        self.assertEqual(report.tables({"keep-alive": []}), "")


class Rounds(unittest.TestCase):
    def test_each_proxy_has_each_place(self):
        orders = [measure.rotated(["a", "b", "c"], turn) for turn in range(3)]
        for place in range(3):
            self.assertEqual({order[place] for order in orders}, {"a", "b", "c"})


class Wrk(unittest.TestCase):
    def test_result(self):
        said = "Running 2s test\n  100 requests in 2.00s\nRESULT 100 2000000 1 2\n"
        self.assertEqual(measure.parse_wrk(said), (100, 2.0, 3))

    def test_no_result(self):
        with self.assertRaises(world.Trouble):
            measure.parse_wrk("unable to connect")


if __name__ == "__main__":
    unittest.main()
