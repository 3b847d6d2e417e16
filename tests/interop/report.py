"""The table of the matrix, for people and for docs/interop.md."""

import collections

from matrix import ROWS

COLUMNS = [
    (link, lossy, near_starts) for link in ("udp", "xdp") for lossy in (False, True) for near_starts in (True, False)
]  # fmt: skip
BEGIN, END = "<!-- interop: written by tools/interop --update-docs -->", "<!-- interop: end -->"
HEAD = """\
A number is how many cells passed, each with data checked at both ends: message sizes from 0 to 1 MiB, MTU 1024,
2048 and 4096, IPv4 and IPv6. `▸` we initiate, `◂` the peer does. A lossy wire loses 1 % of the packets and reorders
1 %, in both directions. `–` is not supported by the peer, with the reason below.
"""


class Table:
    """Counts of cells by kernel, row and column."""

    def __init__(self):
        self.counts = collections.defaultdict(collections.Counter)
        self.reasons = {}
        self.kernels = []

    def add(self, version, result):
        """Count a result; `version` is the peer's kernel."""
        cell = result.cell
        if version not in self.kernels:
            self.kernels.append(version)
        column = (cell.column.link, cell.column.lossy, cell.near_starts)
        key = (version, cell.service, cell.op, column)
        self.counts[key][result.outcome] += 1
        if result.outcome == "no":
            self.reasons.setdefault(result.why, len(self.reasons) + 1)
            self.counts[key][f"note {self.reasons[result.why]}"] += 1

    def markdown(self):
        """All of it as Markdown."""
        lines = [HEAD]
        titles = [f"{link} {'lossy' if lossy else 'clean'} {'▸' if near else '◂'}" for link, lossy, near in COLUMNS]
        for version in self.kernels:
            lines += [f"| Linux {version} | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
            for service, op in ROWS:
                cells = [self._cell((version, service, op, column)) for column in COLUMNS]
                lines.append(f"| {service.upper()} {op.upper().replace('_', ' ')} | {' | '.join(cells)} |")
            lines.append("")
        lines += [f"{number}. {reason}." for reason, number in self.reasons.items()]
        return "\n".join(lines).rstrip() + "\n"

    def _cell(self, key):
        count = self.counts.get(key)
        if not count:
            return ""
        notes = ",".join(sorted(name.removeprefix("note ") for name in count if name.startswith("note ")))
        notes = f" <sup>{notes}</sup>" if notes else ""
        if count["fail"]:
            return f"**{count['fail']} of {count['fail'] + count['pass']} fail**{notes}"
        return f"{count['pass'] or '–'}{notes}"


def update(page, text):
    """Put the text between the markers of a file."""
    content = page.read_text()
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no {BEGIN} … {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")
