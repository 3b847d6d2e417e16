#!/usr/bin/env python3
"""Puts the page together: one file with its style, its scripts and the engine.

usage: assemble.py ENGINE.wasm PAGE.html
"""

import base64
import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# In one module, in this order.
SCRIPTS = ["look.js", "engine.js", "ladder.js", "wire.js", "plot.js", "network.js", "packet.js", "side.js", "lessons.js", "page.js"]


def main():
    engine, page = Path(sys.argv[1]), Path(sys.argv[2])
    wasm = base64.b64encode(engine.read_bytes()).decode()
    parts = [f"const WASM = {json.dumps(wasm)};", f"const RULES = {json.dumps(rules())};"]
    parts += [(HERE / script).read_text(encoding="utf-8") for script in SCRIPTS]
    text = (HERE / "index.html").read_text(encoding="utf-8")
    text = text.replace("/* STYLE */", (HERE / "style.css").read_text(encoding="utf-8"))
    text = text.replace("/* SCRIPT */", "\n".join(parts))
    page.write_text(text, encoding="utf-8")
    print(f"{page}: {page.stat().st_size} bytes")


def rules():
    """What docs/conformance.md says about each rule: the files that name it."""
    found = {}
    for line in (HERE.parent / "conformance.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and re.match(r"(IBTA|Annex|C\d+-|o\d+-)", cells[0]):
            found[cells[0]] = {"code": names(cells[1]), "tests": names(cells[2])}
    return found


def names(cell):
    return re.findall(r"\[([^\]]+)\]", cell)


main()
