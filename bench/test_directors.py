"""Tests of what bench/direct makes of its samples."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import directors
import meters

FLOW, PACKET = "flow of 256 KiB", "packet, 1,000 flows"


def one(straight, **ways):
    """A round: microseconds of each way for a flow of ten packets, and for a packet where there are two numbers."""
    def sample(numbers):
        facts = zip((FLOW, PACKET), numbers, straight, (10, 1))
        return {load: {"seconds": own / 1e6, "straight": base / 1e6, "packets": count} for load, own, base, count in facts}
    return {way.replace("_", " "): sample(numbers) for way, numbers in ways.items()}


class Ratios(unittest.TestCase):
    def test_ways_are_compared_within_a_round_and_without_what_is_there_anyway(self):
        samples = [one([100, 1], tcp=[300], ipvs=[120, 3]), one([100, 1], tcp=[500], ipvs=[140, 3])]
        self.assertEqual(directors.ratio(samples, "ipvs", "tcp", FLOW, FLOW), "0.10 (0.10-0.10)")

    def test_a_packet_is_compared_with_one_of_a_flow_where_there_is_nothing_else(self):
        samples = [one([100, 1], tcp=[300], xdp_driver=[120, 3])]
        # 2 us of 200 us for ten packets.
        self.assertEqual(directors.ratio(samples, "xdp driver", "tcp", PACKET, FLOW), "0.10")

    def test_what_is_missing_or_lost_in_noise_has_none(self):
        samples = [one([100, 1], tcp=[300], xdp_driver=[90, 1])]
        self.assertEqual(directors.ratio(samples, "xdp driver", "tcp", FLOW, FLOW), "")
        self.assertEqual(directors.ratio(samples, "tcp", "ipvs", FLOW, FLOW), "")


class Tables(unittest.TestCase):
    def test_what_is_printed(self):
        samples = [one([100, 1], tcp=[300], xdp_stack=[120, 3])]
        found = {"samples": samples, "missing": {"ipvs": "no such module"}, "others": 0.2}
        lines = directors.table("lab", found).splitlines()
        self.assertEqual(lines[0], "lab, rounds: 1 (WARNING: 20% of the processor's time was not ours: figures are noisy)")
        self.assertEqual(lines[2], "| added by a director | way | us | packets a CPU second | of tcp | of ipvs |")
        self.assertEqual(lines[4], "| flow of 256 KiB | tcp | 200 | 50,000 |  |  |")
        self.assertEqual(lines[5], "| flow of 256 KiB | xdp stack | 20.0 | 500,000 | 0.10 |  |")
        self.assertEqual(lines[6], "| packet, 1,000 flows | xdp stack | 2.00 | 500,000 | 0.10 |  |")
        self.assertEqual(lines[-1], "ipvs is not in 1 of the rounds: no such module")


class Meters(unittest.TestCase):
    def test_processors_are_read(self):
        for idle, total in meters.processors().values():
            self.assertTrue(0 <= idle <= total)


if __name__ == "__main__":
    unittest.main()
