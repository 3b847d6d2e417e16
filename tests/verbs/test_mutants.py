"""Faults planted in a SoftRNIC peer: `softrnic drill` must find each over a wire, by the script that is about it."""

import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from harness import ROOT, SOFTRNIC, TARGET, VerbsTest, environment, free_port, is_listening

LISTED = (ROOT / "tests/sim/mutants.txt").read_text().splitlines()
LINES = [line.split() for line in LISTED if not line.startswith("#")]
FAULTS = [(fault, script) for fault, script, *where in LINES if where != ["simulated"]]
# The only build that has them; no profile of a release is called so.
PLANTED = TARGET.parent / "planted/verbs"


class Mutants(VerbsTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        build = ["cargo", "build", "--locked", "--profile", "planted", "-p", "softrnic-ibverbs"]
        build += ["--no-default-features", "--features", "planted"]
        subprocess.run(build, cwd=ROOT, check=True, timeout=900)
        subprocess.run(["tools/link-ibverbs", "planted"], cwd=ROOT, check=True, timeout=60)
        source = subprocess.run([SOFTRNIC, "drill", "--agent"], capture_output=True, check=True).stdout
        (cls.folder / "agent.c").write_bytes(source)
        argv = ["cc", "-O2", "-o", cls.folder / "agent", cls.folder / "agent.c", "-libverbs"]
        subprocess.run(argv, check=True, timeout=120)

    def judge(self, peer, script, fault):
        """What drill says of a peer at this address, with this fault or with none."""
        port = free_port()
        device = f"udp:{peer}?early=off&shared=off" + (f"&planted={fault}" if fault else "")
        env = environment(self.folder, LD_LIBRARY_PATH=str(PLANTED), SOFTRNIC_DEVICES=device)
        with subprocess.Popen([self.folder / "agent", str(port)], env=env) as agent:
            try:
                deadline = time.monotonic() + 20
                while not is_listening(port):
                    self.assertLess(time.monotonic(), deadline, "the agent does not listen")
                    time.sleep(0.01)
                argv = [SOFTRNIC, "drill", "--peer", peer, "--port", port, "--json", script]
                argv += ["--captures", self.folder / peer]
                done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=120)
                return json.loads(done.stdout)["scripts"][0]
            finally:
                agent.kill()

    def test_each_is_found_and_nothing_where_there_is_none(self):
        self.assertGreaterEqual(len(FAULTS), 10)
        runs = [(script, planted) for fault, script in FAULTS for planted in (None, fault)]
        # Most of the time, drill waits.
        with ThreadPoolExecutor(2 * os.cpu_count()) as pool:
            found = list(pool.map(lambda number: self.judge(f"127.9.23.{number + 1}", *runs[number]), range(len(runs))))
        for number, ((script, planted), judged) in enumerate(zip(runs, found)):
            # Too much has run at once for drill to tell: it is asked again, alone.
            if judged["verdict"] == "cannot_tell":
                judged = self.judge(f"127.9.23.{number + 1}", script, planted)
            with self.subTest(script=script, fault=planted):
                self.assertEqual(judged["verdict"], "deviates" if planted else "conforms", judged)


if __name__ == "__main__":
    unittest.main()
