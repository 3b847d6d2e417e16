#!/usr/bin/env python3
"""Runs the steps of the action, of GitLab's template and of the release workflow that need neither the service nor a build,
with an archive whose `softrnic` is a script, from a directory that stands for the repository's releases."""

import os
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

import ci  # noqa: E402
import yaml  # noqa: E402

VERSION = re.search(r'(?m)^version = "(.*)"$', (ROOT / "Cargo.toml").read_text())[1]
WORKFLOWS = [*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob("examples/*/.github/workflows/*.yml"), ROOT / "examples/ci/github.yml"]


class Workflows(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="softrnic-workflows-")
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def release(self, version):
        """An archive of this version, where the repository at `directory` would publish it."""
        home = self.directory / f"releases/download/v{version}"
        return ci.release(home, version, f'echo \'[{{"name": "release {version}"}}]\'')

    def action(self, **inputs):
        work = self.directory / f"work{len(list(self.directory.iterdir()))}"
        return ci.action(ROOT, work, repository=f"file://{self.directory}", **inputs)

    def test_without_inputs_the_action_takes_its_own_version_from_its_own_repository(self):
        self.release(VERSION)
        self.release("9.9.9")
        self.assertEqual(self.action(), f"release {VERSION}")

    def test_a_version_may_be_named_with_and_without_its_v(self):
        self.release("9.9.9")
        for version in ("9.9.9", "v9.9.9"):
            self.assertEqual(self.action(version=version), "release 9.9.9")

    def test_a_version_that_was_not_released_is_an_error(self):
        self.release(VERSION)
        self.assertRegex(self.action(version="8.8.8"), "curl:")

    def test_an_archive_may_be_named_instead(self):
        self.assertEqual(self.action(archive=str(self.release("7.7.7"))), "release 7.7.7")

    def test_an_archive_with_another_checksum_is_refused(self):
        archive = self.release(VERSION)
        archive.write_bytes(archive.read_bytes() + b"more")
        self.assertRegex(self.action(), "did NOT match")
        self.assertRegex(ci.gitlab(ROOT, self.directory / "work", archive), "did NOT match")

    def test_an_archive_without_a_checksum_is_refused(self):
        archive = self.release(VERSION)
        (archive.parent / "SHA256SUMS").write_text("")
        self.assertNotIn("release", self.action())

    def test_the_template_takes_the_archive_of_its_variable(self):
        self.assertEqual(ci.gitlab(ROOT, self.directory / "work", self.release(VERSION)), f"release {VERSION}")

    def notes(self, tag, changelog):
        """What the release workflow writes for a tag, in a copy of the source with this changelog."""
        copy = self.directory / "copy"
        for name in ("tools/release-notes", "Cargo.toml"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        (copy / "CHANGELOG.md").write_text(changelog)
        steps = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]["release"]["steps"]
        (step,) = [step for step in steps if "notes.md" in step.get("run", "") and step.get("name") != "publish"]
        env = {**os.environ, "GITHUB_REF_NAME": tag, "GITHUB_REPOSITORY": "someone/softrnic"}
        done = ci.run_step(step, env, {}, copy)
        return done, (copy / "target/notes.md").read_text()

    def test_the_notes_of_a_release_are_its_section_and_how_to_use_it(self):
        text = f"# Changelog\n\n## [Unreleased]\n\n- later\n\n## [{VERSION}] - 2026-01-01\n\n- this\n\n## [0.0.1]\n\n- old\n"
        done, notes = self.notes(f"v{VERSION}", text)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("- this", notes)
        self.assertNotRegex(notes, "later|old")
        self.assertIn(f"- uses: someone/softrnic@v{VERSION}", notes)

    def test_a_tag_of_another_version_is_refused(self):
        done, _ = self.notes("v99.0.0", f"## [{VERSION}]\n\n- this\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"the tag must be v{VERSION}", done.stderr)

    def test_a_version_without_a_section_is_refused(self):
        done, _ = self.notes(f"v{VERSION}", "## [Unreleased]\n\n- this\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"no section '## [{VERSION}]'", done.stderr)

    def test_other_peoples_actions_are_pinned_to_a_commit(self):
        for file in WORKFLOWS:
            for used in re.findall(r"uses: (\S+)", file.read_text()):
                with self.subTest(file=file.relative_to(ROOT), used=used):
                    self.assertRegex(used, rf"^OWNER/softrnic@v{re.escape(VERSION)}$|@[0-9a-f]{{40}}$")


if __name__ == "__main__":
    unittest.main(verbosity=1)
