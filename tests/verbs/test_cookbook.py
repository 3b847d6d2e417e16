"""The commands of docs/cookbook, run as they stand, each page in one shell and a directory of its own."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import packages
from harness import ROOT, SOFTRNIC, TARGET, TIMEOUT, VerbsTest, free_port

sys.path.append(str(ROOT / "tests/dist"))
import ci  # noqa: E402

PAGES = ROOT / "docs/cookbook"
PAGE_TIMEOUT = 2 * TIMEOUT
# Where a page ended, if not at its end.
SAY = """trap 'echo "ended with $?: $BASH_COMMAND" >&2' ERR"""
# How much of each log is said of a page that fails, in lines.
LAST_LINES = 5


def blocks(text, language):
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", text)


class PageTest(VerbsTest):
    def play(self, page, **extra):
        commands = blocks((PAGES / f"{page}.md").read_text(), "sh")
        self.assertTrue(commands)
        with tempfile.TemporaryDirectory(prefix="softrnic-test-") as directory:
            env = {**self.env, **extra, "PATH": f"{TARGET}:{os.environ['PATH']}"}
            # Each block must end well, and what runs in the background must not be left.
            script = f"set -e\n{SAY}\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + "\n".join(commands)
            done = subprocess.run(["bash", "-c", script], env=env, cwd=directory, capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=PAGE_TIMEOUT)
            logs = [(log.name, log.read_text(errors="replace").splitlines()) for log in sorted(pathlib.Path(directory).glob("*.log"))]
        # The last is what is shown again when all tests are over.
        last = "".join("\n  ".join([f"\n{name}:", *lines[-LAST_LINES:]]) for name, lines in logs)
        self.said = f"{page}: {done.stdout}{last}\n{done.stderr}"
        self.assertEqual(done.returncode, 0, self.said)
        return done.stdout


class CookbookOfPackages(PageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.packages = packages.python()

    def test_an_nvme_disk(self):
        out = self.play("nvme", PYTHONPATH=str(self.packages))
        self.assertIn("hello", out)

    def test_frameworks_of_ai(self):
        out = self.play("ai", PYTHONPATH=str(self.packages))
        self.assertEqual(out.count("the weights are those of one process"), 2, out)
        self.assertIn("Mooncake has read 1048576 bytes", out)
        self.assertIn("NIXL has read 1048576 bytes", out)


class Cookbook(PageTest):
    def test_what_takes_the_place_of_rxe(self):
        out = self.play("from-rxe")
        for said in (r"hca_id:\s+softrnic0", r"hca_id:\s+rxe0", r"1: CA", r"1000 iters in", "ping data: rdma-ping-0", "RC SEND"):
            self.assertRegex(out, said)

    def test_mpi_ranks_agree(self):
        out = self.play("mpi")
        self.assertEqual(out.count("2 ranks agree"), 3, out)

    def test_a_port_fails(self):
        out = self.play("fail-over")
        for said in ("rail1", "status 12"):
            self.assertIn(said, out)

    def test_containers_and_pods(self):
        out = self.play("containers")
        self.assertIn("1000 iters in", out)
        self.assertRegex(out, r"(?m)^ 65536 +500 ")

    def test_hosts_send_to_one(self):
        out = self.play("congestion")
        self.assertEqual(len(re.findall(r"(?m)^ 65536 ", out)), 3, self.said)
        self.assertIn("s0-h3", out)

    def test_a_class(self):
        out = self.play("teaching")
        for said in ("no fault found", "RC Acknowledge", "nth=3"):
            self.assertIn(said, out)

    def test_a_job(self):
        out = self.play("ci")
        self.assertIn("softrnic0", out)

    def test_the_workflows_are_those_of_the_examples(self):
        text = (PAGES / "ci.md").read_text()
        named = re.findall(r"<!-- (\S+) -->\n```yaml\n", text)
        shown = blocks(text, "yaml")
        self.assertEqual(len(named), len(shown))
        for name, block in zip(named, shown):
            self.assertEqual(block.strip(), (ROOT / name).read_text().strip(), name)

    def test_a_failed_job_keeps_what_explains_it(self):
        with tempfile.TemporaryDirectory(prefix="softrnic-test-") as directory:
            directory = pathlib.Path(directory)
            archive = ci.release(directory, "1.2.3", f'exec {SOFTRNIC} "$@"')
            for fails in (ci.github_fails, ci.gitlab_fails):
                with self.subTest(fails.__name__):
                    kept, said = fails(ROOT, directory / fails.__name__, archive, free_port())
                    self.assertEqual(ci.unexplained(kept, said), [])

    def test_every_page_is_played_and_listed(self):
        pages = {page.stem for page in PAGES.glob("*.md")} - {"README"}
        played = set(re.findall(r'self\.play\("(\S+?)"', pathlib.Path(__file__).read_text()))
        self.assertEqual(pages, played)
        self.assertEqual(set(re.findall(r"\]\((\S+?)\.md\)", (PAGES / "README.md").read_text())), pages)
