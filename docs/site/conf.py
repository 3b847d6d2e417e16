"""How Sphinx makes the site of `make site` from the Markdown files of the project (tools/site).

The files are those that a reader sees in the repository, with nothing in them for the site. Here is what it adds: the
contents, links to what the build put beside the pages, and what becomes of links to files that are no pages.
"""

import os
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What tools/site has put beside the pages, such as "api" and "playground.html".
BUILT = os.environ.get("SITE_PARTS", "").split()
WORKSPACE = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]

# The contents: which pages a page has below it. A page that no other names is an error.
BELOW = {
    "README": [
        ("Begin", ["docs/install", "docs/tour/README", "docs/playground/README", "docs/looking", "docs/check", "docs/check-reports", "docs/adversarial", "docs/like", "docs/which-tool", "docs/troubleshooting",
                   "docs/faults", "docs/ports", "docs/rails", "docs/rdma-tool"]),
        ("Use it", ["docs/verbs", "docs/programs", "docs/preload", "docs/environment", "docs/interposed-calls", "docs/rdmacm", "docs/pyverbs", "docs/rust",
                    "docs/site/api", "docs/real-interfaces", "docs/fabric", "docs/fabric-reference", "docs/congestion/README", "docs/kubernetes", "docs/cookbook/README", "examples/c/README", "examples/python/README",
                    "examples/rust/README", "examples/nvmf-target/README"]),
        ("Beside others", ["docs/drill", "docs/interop", "docs/rxe-differences", "docs/decode-vs-tshark", "docs/wire-extensions"]),
        ("How well it works", ["docs/performance", "docs/conformance", "docs/fuzzing", "docs/mutation", "docs/abi-arguments"]),
        ("The project", ["docs/ARCHITECTURE", "CONTRIBUTING", "SECURITY", "CHANGELOG"]),
    ],
    "docs/tour/README": [(None, ["[1-9]*"])],
    "docs/congestion/README": [(None, ["fairness", "victim", "deadlock", "paths"])],
    "docs/cookbook/README": [(None, ["ci", "from-rxe", "containers", "mpi", "fail-over", "congestion", "nvme", "ai", "teaching"])],
    "docs/ARCHITECTURE": [(None, ["decisions/README"])],
    "docs/decisions/README": [(None, ["[0-9]*"])],
}

project = "SoftRNIC"
smartquotes = False
version = release = WORKSPACE["version"]
root_doc = "README"
extensions = ["myst_parser"]
include_patterns = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/**.md", "examples/*/README.md"]
exclude_patterns = ["target", ".git", "src", "tests", "tools"]
source_suffix = {".md": "markdown"}
# As the anchors of GitHub.
myst_heading_anchors = 6
# Pages of the changelog's kind name things that no lexer knows.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"SoftRNIC {version}"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_permalinks_icon = "#"
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "native"

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(<?([^)\s>]+)>?\)")
FENCE = re.compile(r"(^```.*?^```)", re.M | re.S)


def setup(app):
    app.connect("source-read", read)


def read(app, name, source):
    """Completes the text of a page."""
    folder = (ROOT / name).parent
    parts = FENCE.split(source[0])
    parts[::2] = [LINK.sub(lambda link: led(folder, link), part) for part in parts[::2]]
    text = "".join(parts)
    if name == "docs/playground/README":
        text = below_title(text, playground())
    elif name == "docs/site/api":
        text += api()
    for caption, pages in BELOW.get(name, []):
        text += contents(caption, pages)
    source[0] = text


def led(folder, link):
    """A link to a page, or to what is shown and fetched with the pages, as it is; any other leads into the repository,
    or nowhere as long as that has no address."""
    picture, text, target = link.groups()
    file, _, anchor = target.partition("#")
    path = (folder / file).resolve()
    if picture or re.match(r"[a-z]+:", target) or not file:
        return link[0]
    if path.is_dir() and (path / "README.md").is_file():
        path, file = path / "README.md", f"{file.rstrip('/')}/README.md"
        return f"[{text}]({file}{'#' + anchor if anchor else ''})"
    inside = path.relative_to(ROOT)
    shown = len(inside.parts) == 1 or inside.parts[0] in ("docs", "examples")
    if shown and path.suffix in (".md", ".pcapng", ".png", ".svg"):
        return link[0]
    if "repository" in WORKSPACE:
        return f"[{text}]({WORKSPACE['repository']}/blob/main/{inside})"
    return text


def below_title(text, more):
    title, _, rest = text.partition("\n")
    return f"{title}\n\n{more}\n{rest}"


def playground():
    if "playground.html" in BUILT:
        return '<p><a href="../../playground.html"><strong>Open the playground</strong></a>, one page that needs nothing else.</p>\n'
    return "This copy of the site was made without the page itself: `make playground`, and then `make site`, puts it here.\n"


def api():
    if "api" not in BUILT:
        return "\nThis copy of the site was made without it.\n"
    crates = sorted(path.parent.name for path in Path(os.environ["SITE_API"]).glob("softrnic_*/index.html"))
    rows = [f'<li><a href="../../api/{crate}/index.html"><code>{crate}</code></a></li>' for crate in crates]
    return "\n".join(["", "<ul>", *rows, "</ul>", ""])


def contents(caption, pages):
    """A table of contents that only the navigation shows."""
    lines = ["", "```{toctree}", ":hidden:", ":glob:", *([f":caption: {caption}"] if caption else []), "", *pages, "```", ""]
    return "\n".join(lines)
