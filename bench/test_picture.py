"""Tests of what bench/sessions makes of its figures."""

import sys
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import picture

HEADS = ["connections closed per upgrade", "memory"]
ROWS = [("other <1>", [("12 of 20", False), ("7", None)], False), ("Baton", [("0 of 20", True), ("8", None)], True)]


class Matrix(unittest.TestCase):
    def setUp(self):
        self.svg = ElementTree.fromstring(picture.matrix("A title & more", HEADS, ROWS, "a foot"))

    def of(self, form):
        return [element for element in self.svg if element.get("class") == form]

    def test_losses_are_marked_and_bold(self):
        self.assertEqual([element.text for element in self.of("lost")], ["12 of 20"])
        # One of each is the legend's.
        self.assertEqual((len(self.of("bad")), len(self.of("good")), len(self.of("plain"))), (2, 2, 2))

    def test_ours_stand_apart(self):
        self.assertEqual(len(self.of("ours")), 1)
        self.assertIn("Baton", [element.text for element in self.of("strong")])

    def test_it_is_told_in_words(self):
        words = self.svg.find("{http://www.w3.org/2000/svg}desc").text
        self.assertIn("other <1>: connections closed per upgrade: 12 of 20; memory: 7.", words)

    def test_heads_fit_their_columns(self):
        self.assertEqual(picture.lines(HEADS[0]), ["connections", "closed per", "upgrade"])


if __name__ == "__main__":
    unittest.main()
