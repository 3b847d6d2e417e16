"""rdma-core's own tests of verbs, as Debian ships them."""

import gzip
import json
import pathlib
import re
import shutil
import tempfile

from harness import ROOT, VerbsTest

SHIPPED = pathlib.Path("/usr/share/doc/rdma-core/tests")

# Tests of other vendors' devices, and those that need a connection manager.
FOREIGN = re.compile(r"^tests\.test_(mlx5|efa)|^tests\.test_rdmacm\.")

# As many of the others must pass at least.
PASSES = 120


class Pyverbs(VerbsTest):
    def test_rdma_cores_generic_tests(self):
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        for file in SHIPPED.iterdir():
            if file.suffix == ".gz":
                with gzip.open(file) as packed:
                    (pathlib.Path(directory.name) / file.stem).write_bytes(packed.read())
            elif file.is_file():
                shutil.copy(file, directory.name)
        shutil.copy(pathlib.Path(__file__).parent / "pyverbs_results.py", directory.name)
        # The Python that Debian's pyverbs is built for.
        out = self.run_ok(
            ["/usr/bin/python3", "-B", "pyverbs_results.py", "results.json"], timeout=300, cwd=directory.name)
        results = json.loads((pathlib.Path(directory.name) / "results.json").read_text())
        results = {name: result for name, result in results.items() if not FOREIGN.match(name)}

        bad = [f"{name}: {outcome}\n{reason}" for name, (outcome, reason) in results.items()
               if outcome not in ("ok", "skipped")]
        self.assertEqual(bad, [], out + "\n".join(bad))
        # 171 generic tests, of which ten are rdmacm's.
        self.assertEqual(len(results), 161)
        passed = sum(outcome == "ok" for outcome, _ in results.values())
        self.assertGreaterEqual(passed, PASSES)
        self.check_documented({name: reason for name, (outcome, reason) in results.items() if outcome == "skipped"})

    def check_documented(self, skipped):
        """Every test that does not run is in the documentation, and every one there is a test that does not run."""
        listed = re.findall(r"(?m)^\| `(test_\w+(?:\.\w+)+)`", (ROOT / "docs/pyverbs.md").read_text())
        self.assertEqual(sorted(name.removeprefix("tests.") for name in skipped), sorted(listed), skipped)
