#!/usr/bin/env python3
"""The site of tools/site in Chromium, from disk, and the check of its links, which must find what is wrong."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "site"
sys.path.insert(0, str(ROOT / "tests/playground"))

from browser import Browser  # noqa: E402

# What a reader of the browser sees: pictures that did not load, what is wider than the page, and the colours.
LOOK = """(() => {
    const brightness = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0);
    const style = getComputedStyle(document.body);
    return {
        pictures: document.images.length,
        missing: [...document.images].filter((one) => !one.complete || one.naturalWidth === 0).map((one) => one.src),
        wider: document.documentElement.scrollWidth - innerWidth,
        dark: brightness(style.backgroundColor) < brightness(style.color),
        elsewhere: performance.getEntriesByType("resource").map((one) => one.name).filter((name) => !name.startsWith("file:")),
    };
})()"""


class Links(unittest.TestCase):
    def check(self, pages):
        """What is said of a site with these pages, by their paths."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in pages.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            run = subprocess.run([ROOT / "tools/check-site", folder], capture_output=True, text=True)
            self.assertEqual(run.returncode, 1 if run.stderr else 0)
            return run.stderr

    def test_whole_site_passes(self):
        other = '<b id="y z"><a href="../a.html"><a href="#y%20z">'
        self.assertEqual(self.check({"a.html": '<p id="x"><a href="sub/b.html#y%20z">', "sub/b.html": other}), "")
        self.assertEqual(self.check({"a.html": '<a href="https://example.org/nowhere">'}), "", "not ours to look at")

    def test_each_fault_is_found(self):
        for text, fault in [
            ('<a href="b.html">', "leads nowhere"),
            ('<a href="a.html#gone">', "leads to no place of a.html"),
            ('<a href="#gone">', "leads to no place of a.html"),
            ('<a href="/a.html">', "begins at the top of a server"),
            ('<a href="../a.html">', "leads out of the site"),
            ('<img src="gone.png">', "leads nowhere"),
            ('<script src="https://example.org/x.js"></script>', "from elsewhere"),
            ('<link rel="stylesheet" href="//example.org/x.css">', "from elsewhere"),
        ]:
            self.assertIn(fault, self.check({"a.html": text}), text)

    def test_lines_of_source_files_are_found_by_script(self):
        links = "".join(f'<a href="api/src/lib.rs.html#{place}">' for place in ("3", "3-5", "gone"))
        said = self.check({"a.html": links, "api/src/lib.rs.html": ""})
        self.assertEqual(said, "a.html: api/src/lib.rs.html#gone leads to no place of lib.rs.html\n")

    def test_pages_that_lead_on_have_the_places_of_others(self):
        on = '<meta http-equiv="refresh" content="0;URL=b.html">'
        self.assertEqual(self.check({"a.html": '<a href="on.html#x">', "on.html": on}), "")


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.__exit__)

    def look(self, page, width, dark):
        browser = self.browser
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        browser.call("Emulation.setEmulatedMedia", features=scheme)
        browser.call("Page.navigate", url=(SITE / page).as_uri())
        browser.until(f"document.readyState === 'complete' && location.pathname.endsWith('/{page}')")
        browser.run("document.querySelectorAll('img').forEach((one) => { one.loading = 'eager'; })")
        browser.until("[...document.images].every((one) => one.complete)")
        return browser.run(LOOK)

    def test_pages_on_a_desk_and_on_a_phone_by_day_and_by_night(self):
        pictures = 0
        for page in ["index.html", "docs/tour/5-loss.html", "docs/playground/README.html", "docs/conformance.html",
                     "docs/performance.html"]:
            for width, dark in [(1300, False), (390, True)]:
                seen = self.look(page, width, dark)
                with self.subTest(page=page, width=width):
                    self.assertEqual((seen["missing"], seen["elsewhere"], seen["dark"]), ([], [], dark))
                    self.assertLessEqual(seen["wider"], 0)
                pictures += seen["pictures"]
        self.assertGreaterEqual(pictures, 4)
        self.assertEqual(self.browser.errors, [])

    def test_search_finds_pages_from_disk(self):
        self.browser.call("Page.navigate", url=(SITE / "search.html").as_uri() + "?q=congestion")
        self.browser.until("document.querySelectorAll('ul.search li a').length > 2")
        found = self.browser.run("[...document.querySelectorAll('ul.search li a')].map((one) => one.textContent)")
        self.assertIn("8. Congestion", found)


if __name__ == "__main__":
    unittest.main()
