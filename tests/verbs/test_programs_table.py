"""docs/programs.md says what the tests say."""

import json
import pathlib
import tempfile
import unittest

import programs_table


class Page(unittest.TestCase):
    maxDiff = None

    def test_each_program_has_tests_and_its_row_counts_them(self):
        names = programs_table.all_tests()
        rows = {}
        for program in programs_table.programs():
            for pattern, found in programs_table.tests_of(program, names).items():
                self.assertTrue(found, f"{pattern} of {program['name']} names no test")
            rows[program["name"]] = programs_table.row(program, names, dict.fromkeys(names, "ok"))
        self.assertEqual(programs_table.rows_of(programs_table.PAGE.read_text()), rows)


class Outcomes(unittest.TestCase):
    PROGRAM = {"name": "x", "version": "1", "command": "x", "compared": "yes", "tests": ["x.*"]}

    NAMES = ["test_x.A.one", "test_x.A.two", "test_y.A.one"]

    def row(self, *outcomes):
        with tempfile.NamedTemporaryFile("w") as file:
            file.writelines(json.dumps(outcome) + "\n" for outcome in outcomes)
            file.flush()
            return programs_table.row(self.PROGRAM, self.NAMES, programs_table.read_outcomes(pathlib.Path(file.name)))

    def test_a_test_that_fails_or_has_a_part_that_fails_does_not_count(self):
        row = self.row(["test_x.A.one", "ok"], ["test_x.A.two", "FAIL"], ["test_x.A.two", "ok"])
        self.assertIn("| 1 of 2 |", row)

    def test_nothing_is_said_of_tests_that_did_not_run(self):
        self.assertIsNone(self.row(["test_x.A.one", "ok"], ["test_x.A.two", "skipped"]))
        self.assertIsNone(self.row(["test_x.A.one", "ok"], ["test_y.A.one", "ok"]))
