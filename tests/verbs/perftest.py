"""What perftest prints."""

import math
import re

# Size, iterations and figures. Bandwidth in MB/s may round to nothing; the message rate, which comes last, does not.
# The deviation of latencies is squared in an int: it is no number once one of them is 46 ms off the average.
RESULT = re.compile(r"(?m)^ \d+ +\d+(?:(?:\s+[\d.]+){4}\s+-?nan)?(?:\s+[\d.]+)+?[ \t]+([\d.]+)[ \t]*$")
ROW = re.compile(r"(?m)^ \d+ +\d+ .*$")


def knows_its_clock(out):
    """Before it measures it compares two clocks; where it is interrupted meanwhile it says that they do not agree, and its
    figures are none."""
    return "Correlation coefficient" not in out


def results(out):
    """The last figure of each row: infinity if they are none."""
    if knows_its_clock(out):
        return [float(last) for last in RESULT.findall(out)]
    return [math.inf for _ in ROW.findall(out)]


def measured(run, times=10):
    """What a run prints that knows its clock."""
    for _ in range(times):
        if knows_its_clock(out := run()):
            return out
    raise AssertionError(f"perftest does not know its clock, {times} times\n{out}")
