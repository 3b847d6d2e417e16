"""The exported symbols, and programs that look for them in different ways."""

import re
import subprocess

from harness import DISTRIBUTION, LIBRARY, ROOT, VerbsTest

TYPES = {"FUNC", "OBJECT"}


class Exports(VerbsTest):
    def test_names_types_and_versions_are_those_of_the_committed_list(self):
        listed = set()
        for line in (ROOT / "src/ibverbs/exports.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                listed.add(tuple(line.split()))
        built = set()
        out = subprocess.run(["readelf", "--dyn-syms", "-W", LIBRARY], check=True, capture_output=True, text=True).stdout
        for line in out.splitlines():
            fields = line.split()
            # Num Value Size Type Bind Vis Ndx Name; default versions are marked with @@, undefined symbols with UND.
            if len(fields) >= 8 and fields[3] in TYPES and fields[6] not in ("UND", "ABS"):
                name, _, version = fields[7].partition("@@")
                self.assertTrue(version, f"{fields[7]} has no default version")
                built.add((version, fields[3], name))
        self.assertEqual(built, listed)

    def test_the_list_has_every_default_symbol_of_the_distribution(self):
        out = subprocess.run(["readelf", "--dyn-syms", "-W", DISTRIBUTION], check=True, capture_output=True, text=True)
        theirs = set(re.findall(r" (\w+)@@(IBVERBS_[\w.]+)", out.stdout))
        ours = (ROOT / "src/ibverbs/exports.txt").read_text()
        missing = [f"{name}@{version}" for name, version in sorted(theirs)
                   if not re.search(rf"(?m)^{re.escape(version)} \w+ {re.escape(name)}$", ours)]
        self.assertEqual(missing, [])

    def test_the_library_says_who_it_is_and_stays_loaded(self):
        out = subprocess.run(["readelf", "-d", "-W", LIBRARY], check=True, capture_output=True, text=True).stdout
        self.assertIn("[libibverbs.so.1]", out)
        self.assertIn("NODELETE", out)

    def test_pure_functions_answer_like_the_distributions(self):
        program = self.compile("same_as_distribution.c")
        self.run_ok([program, LIBRARY, DISTRIBUTION])

    def test_a_program_linked_with_the_distributions_library(self):
        program = self.compile("every_call.c", "-libverbs", "-lpthread")
        self.assertIn("every call is all right", self.run_ok([program]))

    def test_a_program_that_uses_calls_newer_than_the_distribution(self):
        program = self.compile("other_calls.c", "-libverbs", "-ldl")
        self.assertIn("every other call is all right", self.run_ok([program]))

    def test_a_program_that_uses_dlvsym(self):
        program = self.compile("dlvsym.c", "-ldl")
        self.assertIn("all right", self.run_ok([program]))

    def test_loading_and_unloading_again_and_again(self):
        program = self.compile("dlvsym.c", "-ldl")
        self.assertIn("all right", self.run_ok([program, "20"]))
