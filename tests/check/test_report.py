"""`softrnic run --report`: what is said when a program ends."""

import json
import pathlib
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "verbs"))

from harness import SOFTRNIC, Program, VerbsTest  # noqa: E402


class Report(VerbsTest):
    def run_with(self, option, source, *flags):
        """What a program prints that is run with an option."""
        flags = ("-Wno-unused-function", *flags)
        program = self.compile(HERE / source, "-libverbs", "-lrdmacm", "-lpthread", flags=flags)
        run = Program([SOFTRNIC, "run", option, "--", program], self.env)
        self.addCleanup(run.close)
        ended = run.wait(time.monotonic() + 60)
        self.assertEqual(ended, 0, run.describe(ended))
        return run.output()

    def in_file(self, source, *flags):
        file = self.runtime / "report.json"
        self.run_with(f"--report={file}", source, *flags)
        return json.loads(file.read_text())

    def test_a_failed_qp_has_its_reason(self):
        out = self.run_with("--report", "c/unknown_rkey.c")
        self.assertIn("SoftRNIC: report of ", out)
        self.assertRegex(out, r"failed QPs: \d")
        self.assertRegex(out, "WRITE of 64 B .* no region or window has rkey 0x")
        self.assertNotIn("objects left", out)

    def test_a_program_without_mistakes_has_a_clean_report(self):
        out = self.run_with("--report", "c/unknown_rkey.c", "-DCORRECT")
        self.assertIn("no QP has failed, nothing was dropped, and no object is left", out)

    def test_a_file_has_all_of_it_for_machines(self):
        failed = self.in_file("c/unknown_rkey.c")
        self.assertGreaterEqual(failed["failures"], 1)
        self.assertIn(0x201, [qp["vendor_err"] for qp in failed["failed_qps"]])
        self.assertEqual(self.in_file("c/leaked_objects.c")["left"], {"ibv_pd": 1})
        dropped = self.in_file("c/wrong_qkey.c")["dropped"]
        self.assertGreater(dropped["softrnic0"]["qkey_viol"], 0)
        (unpolled,) = self.in_file("c/unpolled_queue.c")["unpolled"]
        self.assertEqual((unpolled["entries"], unpolled["completions"]), (32, 1))


if __name__ == "__main__":
    unittest.main()
