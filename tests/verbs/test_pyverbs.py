"""rdma-core's own tests of verbs, as Debian ships them."""

import gzip
import json
import pathlib
import re
import shutil
import tempfile

from harness import ROOT, SUITE_TIMEOUT, VerbsTest

SHIPPED = pathlib.Path("/usr/share/doc/rdma-core/tests")

# Tests of other vendors' devices.
FOREIGN = re.compile(r"^tests\.test_(mlx5|efa|irdma)")

# As many of the others must pass at least.
PASSES = 145


def copy_tests(shipped, directory):
    """Copies the tests of a package, and what runs them."""
    for file in shipped.iterdir():
        if file.suffix == ".gz":
            with gzip.open(file) as packed:
                (pathlib.Path(directory) / file.stem).write_bytes(packed.read())
        elif file.is_file():
            shutil.copy(file, directory)
    shutil.copy(pathlib.Path(__file__).parent / "pyverbs_results.py", directory)


def generic(results):
    """Outcome and reason of each generic test."""
    told = json.loads(pathlib.Path(results).read_text())
    return {name: result for name, result in told.items() if not FOREIGN.match(name)}


def documented(newest):
    """The tests that do not run and are in the documentation, of the newest release or of Debian 12's."""
    first, second = (ROOT / "docs/pyverbs.md").read_text().split("## The newest release")
    return re.findall(r"`(test_\w+(?:\.\w+)+)`", second if newest else first)


class Pyverbs(VerbsTest):
    # One of them needs huge pages. UCX, which other tests use, takes all there are.
    by_itself = True

    def test_rdma_cores_generic_tests(self):
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        copy_tests(SHIPPED, directory.name)
        # The Python that Debian's pyverbs is built for.
        out = self.run_ok(
            ["/usr/bin/python3", "-B", "pyverbs_results.py", "results.json"], timeout=SUITE_TIMEOUT, cwd=directory.name)
        results = generic(pathlib.Path(directory.name) / "results.json")
        bad = [f"{name}: {outcome}\n{reason}" for name, (outcome, reason) in results.items()
               if outcome not in ("ok", "skipped")]
        self.assertEqual(bad, [], out + "\n".join(bad))
        self.assertEqual(len(results), 171)
        passed = sum(outcome == "ok" for outcome, _ in results.values())
        self.assertGreaterEqual(passed, PASSES)
        self.check_documented({name: reason for name, (outcome, reason) in results.items() if outcome == "skipped"})

    def check_documented(self, skipped):
        """Every test that does not run is in the documentation, and every one there is a test that does not run."""
        self.assertEqual(sorted(name.removeprefix("tests.") for name in skipped), sorted(documented(newest=False)), skipped)
