"""perftest's programs, between two processes."""

import math
import re
import unittest

from harness import VerbsTest
from perftest import results


class Results(unittest.TestCase):
    def test_a_deviation_that_is_no_number(self):
        row = " 4194304 10    1622.43    76283.57    1840.78  \t    12113.98  \t-nan  \t\t76283.57 \t\t76283.57\n"
        self.assertEqual(results(row), [76283.57])

    def test_any_other_figure_must_be_a_number(self):
        self.assertEqual(results(" 65536 10    1622.43    -nan    1840.78\n"), [])

    def test_figures_are_none_without_a_clock(self):
        row = " 10000   200          inf            inf          inf      \t       inf         \t-nan   \t\tinf     \t\tinf    \n"
        self.assertEqual(results(row), [])
        self.assertEqual(results(f"Correlation coefficient r^2: 0.826091 < 0.9\n{row}"), [math.inf])


class Perftest(VerbsTest):
    """Each test is one run of a pair, made by `add_tests`."""

    def test_the_place_of_the_gid_is_found_or_given(self):
        for place in ([], ["-x", "0"], ["-x", "1"]):
            self.perftest("ib_write_bw", "-n", "100", place=place)

    def perftest(self, program, *options, rows=1, place=("-x", "0")):
        options = [*place, "-F", *options]
        outputs = self.run_pair(program, *options, timeout=120)
        for out in outputs:
            self.assertNotRegex(out, r"(?i)couldn't|failed|error")
        # Latency programs print their figures on both sides, one-directional bandwidth programs on the client's.
        figures = results(outputs[1])
        self.assertGreaterEqual(len(figures), rows, outputs[1])
        for last in figures:
            self.assertGreater(last, 0, outputs[1])


def add(name, program, *options, rows=1):
    def test(self):
        self.perftest(program, *options, rows=rows)

    method = "test_" + re.sub(r"\W+", "_", f"{program}_{name}").rstrip("_")
    setattr(Perftest, method, test)


def add_tests():
    programs = [f"ib_{verb}_{kind}" for verb in ("send", "write", "read", "atomic") for kind in ("bw", "lat")]
    for program in programs:
        bandwidth = program.endswith("_bw")
        atomic = "atomic" in program
        all_sizes = ["-a", "-n", "20" if bandwidth else "10"]
        add("rc", program, "-n", "500")
        if atomic:
            for mtu in ("256", "4096"):
                add(f"rc_mtu_{mtu}", program, "-m", mtu, "-n", "200")
        else:
            add("rc_all_sizes", program, *all_sizes, rows=23)
            for mtu in ("256", "512", "1024", "2048", "4096"):
                add(f"rc_mtu_{mtu}", program, "-m", mtu, "-s", "10000", "-n", "200")
        if bandwidth:
            add("rc_both_ways", program, "-b", "-n", "500")
            add("rc_16_qps", program, "-q", "16", "-n", "200")
        add("rc_one_second", program, "-D", "1")
    # perftest has no events for WRITE.
    for program in [program for program in programs if "write" not in program]:
        add("rc_events", program, "-e", "-n", "500")
    for program in ("ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat"):
        bandwidth = program.endswith("_bw")
        all_sizes = ["-a", "-n", "20" if bandwidth else "10"]
        add("rc_inline", program, "-I", "64", "-s", "64", "-n", "500")
        for service in ("UC",) if "write" in program else ("UC", "UD"):
            name, small = service.lower(), ["-s", "1024"] if service == "UD" else []
            add(name, program, "-c", service, "-n", "500", *small)
            add(f"{name}_all_sizes", program, "-c", service, *all_sizes, rows=12 if service == "UD" else 23)
            add(f"{name}_one_second", program, "-c", service, "-D", "1", *small)
            if bandwidth:
                add(f"{name}_both_ways", program, "-c", service, "-b", "-n", "300", *small)
                add(f"{name}_16_qps", program, "-c", service, "-q", "16", "-n", "100", *small)
            if "send" in program:
                add(f"{name}_events", program, "-c", service, "-e", "-n", "300", *small)
        for mtu in ("256", "4096"):
            add(f"uc_mtu_{mtu}", program, "-c", "UC", "-m", mtu, "-s", "10000", "-n", "100")
    for program in ("ib_send_bw", "ib_send_lat"):
        add("rc_srq", program, "--use-srq", "-n", "500")
        add("ud_srq", program, "-c", "UD", "--use-srq", "-s", "1024", "-n", "200")
    add("rc_srq_16_qps", "ib_send_bw", "--use-srq", "-q", "16", "-n", "100")
    add("rc_fetch_and_add", "ib_atomic_bw", "-A", "FETCH_AND_ADD", "-n", "500")
    add("rc_compare_and_swap", "ib_atomic_bw", "-A", "CMP_AND_SWAP", "-n", "500")
    add("xrc", "ib_send_bw", "-c", "XRC", "-n", "300")
    add("xrc", "ib_write_bw", "-c", "XRC", "-n", "300")


add_tests()
