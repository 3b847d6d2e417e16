"""One picture of a run, for light and dark pages."""

from html import escape
from math import log

import plan
from plan import RATE, Name
from tables import number, size_name

WIDTH, LEFT, RIGHT = 960, 64, 268
PLOT_TOP, PLOT_HEIGHT = 64, 300
BAR_LABEL, BAR_HEIGHT = 268, 22

STYLE = """
  svg { --ink: #1f2328; --soft: #59636e; --rule: #d1d9e0; --page: #ffffff;
        --c1: #0969da; --c2: #1a7f37; --c3: #9a6700; --c4: #8250df; --c5: #57606a; --c6: #cf222e; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #f0f6fc; --soft: #9198a1; --rule: #3d444d; --page: #0d1117;
          --c1: #4493f8; --c2: #3fb950; --c3: #d29922; --c4: #ab7df8; --c5: #9198a1; --c6: #f85149; }
  }
  .page { fill: var(--page); }
  text { font: 13px system-ui, sans-serif; fill: var(--ink); }
  .title { font-weight: 600; font-size: 15px; }
  .soft { fill: var(--soft); }
  .rule { stroke: var(--rule); stroke-width: 1; }
  .line { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
  .dashed { stroke-dasharray: 6 4; }
"""

# Subject, colour, dashed: ours are whole, what they are compared with is dashed.
LINES = [
    (plan.PERFTEST_SHM, 6, False), (plan.RING, 6, True),
    (plan.PERFTEST, 1, False), (plan.WIRE, 1, True), (plan.TCP, 3, True), (plan.UCX, 4, True),
    (plan.PERFTEST_XDP, 2, False), (plan.XDP, 2, True), (plan.TCP_VETH, 5, True),
]  # fmt: skip
LATENCIES = [
    (plan.PERFTEST_SHM, "send", 6), (plan.RING_PING, "", 5), (plan.PERFTEST_SHM, "write", 6),
    (plan.PERFTEST, "send", 1), (plan.UDP_SPIN, "", 5), (plan.PERFTEST, "write", 1), (plan.PERFTEST_XDP, "send", 2),
    (plan.XDP_PING, "", 5), (plan.UCX, "tag", 4), (plan.PERFTEST, "send, events", 1), (plan.UDP_BLOCK, "", 5),
]  # fmt: skip
RATES = [(plan.PERFTEST_SHM, "send", 6), (plan.PERFTEST, "send", 1), (plan.PERFTEST_XDP, "send", 2), (plan.UCX, "write", 4), (plan.SENDTO, "", 5)]


def draw(figures, sizes, subtitle):
    parts = bandwidth(figures, sizes)
    y = PLOT_TOP + PLOT_HEIGHT + 84
    latencies = [(label(subject, operation), figures.median(Name("latency", subject, operation, 8), "p50"), colour)
                 for subject, operation, colour in LATENCIES]
    more, y = bars("Latency of 8 bytes, one way, µs (less is better)", latencies, y)
    parts += more
    rates = [(label(subject, operation), figures.median(Name("rate", subject, operation, RATE), "rate"), colour)
             for subject, operation, colour in RATES]
    rates = [(name, value and value / 1e6, colour) for name, value, colour in rates]
    more, y = bars("64-byte messages, million per second (more is better)", rates, y + 34)
    parts += more
    height = y + 16
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="Bandwidth, latency and message rate of SoftRNIC and others">\n<style>{STYLE}</style>\n'
        f'<rect class="page" width="{WIDTH}" height="{height}"/>\n'
        f'<text class="title" x="20" y="26">Bandwidth by message size, GB/s (more is better)</text>\n'
        f'<text class="soft" x="20" y="45">{escape(subtitle)}</text>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


def bandwidth(figures, sizes):
    lines = []
    for subject, colour, dashed in LINES:
        points = [(size, figures.median(Name("stream", subject, "write", size), "bandwidth")) for size in sizes]
        points = [(size, value / 1e9) for size, value in points if value]
        if points:
            lines.append((subject, colour, dashed, points))
    top = max((value for *_, points in lines for _, value in points), default=1.0)
    step = next(step for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if top / step <= 8)
    limit = (int(top / step) + 1) * step
    span = log(sizes[-1] / sizes[0]) or 1.0

    def place(size, value):
        x = LEFT + log(size / sizes[0]) / span * (WIDTH - LEFT - RIGHT)
        return x, PLOT_TOP + (1 - value / limit) * PLOT_HEIGHT

    parts = []
    for tick in range(int(limit / step) + 1):
        _, y = place(sizes[0], tick * step)
        parts.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="soft" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick * step:g}</text>')
    for size in sizes:
        x, y = place(size, 0)
        parts.append(f'<text class="soft" x="{x:.1f}" y="{y + 20:.1f}" text-anchor="middle">{size_name(size)}</text>')
    free = 0.0
    for subject, colour, dashed, points in sorted(lines, key=lambda line: -line[3][-1][1]):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        kind = "line dashed" if dashed else "line"
        parts.append(f'<polyline class="{kind}" style="stroke:var(--c{colour})" points="{path}"/>')
        for size, value in points:
            x, y = place(size, value)
            title = f"{subject}, {size_name(size)}: {number(value)} GB/s"
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" style="fill:var(--c{colour})">'
                         f"<title>{escape(title)}</title></circle>")
        x, y = place(*points[-1])
        # Names stand beside the ends of their lines, and not on each other.
        free = max(y + 4, free + 18)
        end = WIDTH - RIGHT
        parts.append(f'<text x="{end + 14}" y="{free:.1f}" style="fill:var(--c{colour})">{escape(subject)}</text>')
    return parts


def bars(title, rows, y):
    """A bar for each value, from the top of the picture down; returns where it ends too."""
    rows = [(name, value, colour) for name, value, colour in rows if value]
    parts = [f'<text class="title" x="20" y="{y}">{escape(title)}</text>']
    longest = max((value for _, value, _ in rows), default=1.0)
    room = WIDTH - BAR_LABEL - 90
    for name, value, colour in rows:
        y += BAR_HEIGHT
        width = max(1.0, value / longest * room)
        parts.append(f'<text x="{BAR_LABEL - 10}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{BAR_LABEL}" y="{y - 8}" width="{width:.1f}" height="15" rx="3" '
                     f'style="fill:var(--c{colour})"/>')
        parts.append(f'<text class="soft" x="{BAR_LABEL + width + 8:.1f}" y="{y + 4}">{number(value)}</text>')
    return parts, y + BAR_HEIGHT


def label(subject, operation):
    return f"{subject}: {operation}" if operation else subject
