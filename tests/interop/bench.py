"""SoftRNIC beside rxe on the guest's one emulated processor, over loopback, in turn."""

import statistics

from guest import ROOT

ROUNDS = 3
TESTS = [
    ("ib_write_bw, 64 KiB, MB/s", ["ib_write_bw", "-s", "65536", "-n", "1000"], 3),
    ("ib_send_lat -e, 8 B, us", ["ib_send_lat", "-e", "-s", "8", "-n", "500"], 4),
]
FIRST_PORT = 22000


class Bench:
    """Both devices in a guest, with the same programs."""

    def __init__(self, guest, library):
        self.guest, self.library = guest, library

    def run(self):
        """A table with the medians and their ratios."""
        lines = [f"| in the guest, Linux {self.guest.version} | SoftRNIC | rxe | ratio |", "|---|---|---|---|"]
        port = FIRST_PORT
        for name, argv, column in TESTS:
            figures = {"rxe": [], "softrnic": []}
            for _ in range(ROUNDS):
                for kind, measured in figures.items():
                    port += 1
                    measured.append(self._one(kind, port, argv, column))
            ours, theirs = (statistics.median(figures[kind]) for kind in ("softrnic", "rxe"))
            lines.append(f"| {name} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} |")
        return "\n".join(lines)

    def _one(self, kind, port, argv, column):
        script = ROOT / "tests/interop/bench.sh"
        said = self.guest.run(script, kind, self.library, port, *argv, timeout=120)
        rows = [line.split() for line in said.splitlines() if line[:1] == " " and line.split()[0] == argv[argv.index("-s") + 1]]
        if len(rows) != 1:
            raise RuntimeError(f"{' '.join(argv)} on {kind} said: {said}")
        return float(rows[0][column])
