"""The figures as text: on a terminal, and as Markdown."""

import plan
from figures import bars
from plan import MAIN, RATE, Name


class Table:
    """Columns that line up; the first is aligned left, the others right."""

    def __init__(self, title, columns, rows, note=""):
        self.title, self.columns, self.rows, self.note = title, columns, rows, note

    def text(self, paint):
        widths = [max(len(row[i]) for row in [self.columns, *self.rows]) for i in range(len(self.columns))]
        left = {0} | {i for i, column in enumerate(self.columns) if column in ("means", "wanted")}

        def line(cells):
            padded = [cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths))]
            return "  ".join(padded).rstrip()

        lines = [paint("1", self.title), paint("2", line(self.columns))]
        for row in self.rows:
            text = line(row)
            text = text.replace("PASS", paint("32", "PASS")) if "PASS" in row else text
            text = text.replace("below", paint("31", "below")) if "below" in row else text
            lines.append(text)
        return "\n".join([*lines, *([paint("2", self.note)] if self.note else [])]) + "\n"

    def markdown(self):
        align = ["---" if i == 0 or column in ("means", "wanted") else "---:" for i, column in enumerate(self.columns)]
        lines = [f"### {self.title}", ""]
        lines += ["| " + " | ".join(cells) + " |" for cells in [self.columns, align, *self.rows]]
        return "\n".join([*lines, "", *([self.note, ""] if self.note else [])])


def tables(figures, sizes):
    """All tables, the bars first."""
    return [table for table in (
        bars_table(figures), bandwidth_table(figures, sizes), main_table(figures), latency_table(figures),
        rate_table(figures), other_table(figures),
    ) if table.rows]  # fmt: skip


def bars_table(figures):
    rows = [[bar.what, bar.wanted, bar.shown, bar.verdict, bar.note] for bar in bars(figures)]
    return Table("What is to be reached", ["figure", "wanted", "reached", "", "means"], rows, figures.distance())


STREAMS = [
    plan.PERFTEST_SHM, plan.RUST_SHM, plan.RING, plan.UCX_RC, plan.UCX_POSIX, plan.UCX_CMA,
    plan.PERFTEST, plan.PERFTEST_UNLIMITED, plan.RUST, plan.WIRE, plan.WIRE_UNLIMITED, plan.TCP, plan.UCX,
    plan.PERFTEST_XDP, plan.RUST_XDP, plan.XDP, plan.TCP_VETH, plan.MEMCPY,
]  # fmt: skip


def bandwidth_table(figures, sizes):
    rows = []
    for subject in STREAMS:
        cells = [figures.median(Name("stream", subject, "write", size), "bandwidth") for size in sizes]
        if any(cells):
            rows.append([subject, *(number(value and value / 1e9) for value in cells)])
    columns = ["RDMA WRITE, GB/s", *(size_name(size) for size in sizes)]
    note = "For TCP, how much one write takes; UCX puts. memcpy is what one process can copy for itself."
    return Table("Bandwidth", columns, rows, note)


def main_table(figures):
    wire, ring = (Name("stream", subject, "write", MAIN) for subject in (plan.WIRE, plan.RING))
    tcp = Name("stream", plan.TCP, "default", 128 << 10)
    rows = []
    for subject, operation in [*((subject, "write") for subject in [*STREAMS, plan.RAW, plan.XDP_RAW]),
                               *((subject, operation) for subject in STREAMS for operation in ("read", "send"))]:
        name = Name("stream", subject, operation, MAIN)
        bandwidth = figures.median(name, "bandwidth")
        if bandwidth is None:
            continue
        cpu = figures.median(name, "cpu_per_byte")
        rows.append([
            subject if operation == "write" else f"{subject}: {operation.upper()}",
            number(bandwidth / 1e9),
            ratio(figures.ratio(name, wire, "bandwidth")),
            ratio(figures.ratio(name, ring, "bandwidth")),
            ratio(figures.ratio(name, tcp, "bandwidth")),
            number(cpu and cpu * 1024),
            number(cpu and cpu * MAIN / 1000),
        ])  # fmt: skip
    columns = ["64 KiB", "GB/s", "× bare loop", "× bare ring", "× TCP", "CPU ns/KiB", "CPU µs/message"]
    note = "CPU: of both processes together. One that spins while it waits uses it all."
    return Table("Streams of 64 KiB", columns, rows, note)


def latency_table(figures):
    subjects = [
        *((plan.PERFTEST_SHM, operation) for operation in ("send", "write", "send, events", "read")),
        (plan.RUST_SHM, "send"), (plan.RUST_SHM, "write"), (plan.RING_PING, ""), (plan.UCX_POSIX, "tag"),
        (plan.PERFTEST, "send"), (plan.PERFTEST, "write"), (plan.PERFTEST, "send, events"), (plan.PERFTEST, "read"),
        (plan.RUST, "send"), (plan.RUST, "write"), (plan.UDP_SPIN, ""), (plan.WIRE_PING, ""),
        (plan.UDP_BLOCK, ""), (plan.UCX, "tag"),
        (plan.LIBFABRIC, "msg"), (plan.PERFTEST_XDP, "send"), (plan.PERFTEST_XDP, "write"), (plan.RUST_XDP, "send"),
        (plan.XDP_PING, ""), (plan.XDP_WIRE_PING, ""),
    ]  # fmt: skip
    rows = []
    for subject, operation in subjects:
        cells = []
        for size in plan.LATENCY_SIZES:
            name = Name("latency", subject, operation, size)
            cells += [number(figures.median(name, share)) for share in ("p50", "p99", "p99_9")]
        name = Name("latency", subject, operation, 8)
        base = plan.XDP_PING if "xdp" in subject or "AF_XDP" in subject else plan.UDP_SPIN
        against = figures.ratio(name, Name("latency", base, "", 8), "p50")
        if any(cell != "–" for cell in cells):
            rows.append([f"{subject}: {operation}" if operation else subject, *cells, ratio(against)])
    columns = ["µs, one way", *(f"{size_name(size)} {share}" for size in plan.LATENCY_SIZES
                                for share in ("50 %", "99 %", "99.9 %")), "8 B × spinning"]
    note = "Half of a round trip; READ there and back. The last column is against half of a round trip of bare sockets, or rings."
    return Table("Latency", columns, rows, note)


def rate_table(figures):
    subjects = [
        (plan.PERFTEST_SHM, "send"), (plan.PERFTEST_SHM, "write"), (plan.RUST_SHM, "send"), (plan.RING, "write"),
        (plan.PERFTEST, "send"), (plan.PERFTEST, "write"), (plan.RUST, "send"), (plan.WIRE, "write"),
        (plan.SENDTO, ""), (plan.UCX, "write"), (plan.PERFTEST_XDP, "send"), (plan.PERFTEST_XDP, "write"),
        (plan.RUST_XDP, "send"),
    ]  # fmt: skip
    base = Name("rate", plan.SENDTO, "", RATE)
    rows = []
    for subject, operation in subjects:
        name = Name("rate", subject, operation, RATE)
        rate = figures.median(name, "rate")
        if rate is not None:
            cpu = figures.median(name, "cpu_per_message")
            against = ratio(figures.ratio(name, base, "rate"))
            rows.append([f"{subject}: {operation}" if operation else subject, number(rate / 1e6), against, number(cpu)])
    columns = ["64 bytes", "million/s", "× sendto", "CPU ns/message"]
    return Table("Message rate", columns, rows)


def other_table(figures):
    rows = []
    for name in sorted((name for name in figures.taken if name.kind == "other"), key=lambda name: name.operation):
        cpu = figures.median(name, "cpu_per_byte")
        cells = [number(figures.median(name, "bandwidth") / 1e9), number(cpu and cpu * 1024)]
        rows.append([f"{name.subject}: {name.operation}, {size_name(name.size)}", *cells])
    return Table("Under load and loss", ["WRITE", "GB/s", "CPU ns/KiB"], rows)


def number(value):
    """Three significant digits."""
    if value is None:
        return "–"
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def ratio(value):
    return "–" if value is None else f"{value:.2f}"


def size_name(size):
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"
