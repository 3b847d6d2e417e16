"""ibverbs-utils' ping-pong programs, between two processes."""

from harness import VerbsTest

# Debian's programs, and which of them check the data (-c).
PROGRAMS = {
    "ibv_rc_pingpong": True,
    "ibv_uc_pingpong": True,
    "ibv_ud_pingpong": True,
    "ibv_srq_pingpong": True,
    "ibv_xsrq_pingpong": False,
}


class PingPong(VerbsTest):
    def pingpong(self, program, *options):
        options = ["-g", "0", "-n", "2000", *options]
        for out in self.run_pair(program, *options):
            self.assertRegex(out, r"(?m)\d+ iters in|^success$")


    def test_from_the_place_that_some_clients_have_built_in(self):
        for out in self.run_pair("ibv_rc_pingpong", "-g", "1", "-c"):
            self.assertRegex(out, r"(?m)^1000 iters in")


def add_tests():
    variants = [(program, []) for program in PROGRAMS]
    variants += [(program, ["-e"]) for program in PROGRAMS]
    variants += [(program, ["-c"]) for program, checks in PROGRAMS.items() if checks]
    variants += [("ibv_rc_pingpong", option.split()) for option in (
        "-N", "-N -c", "-t", "-o", "-o -c", "-o -O -P", "-j", "-j -c",
    )]
    variants += [("ibv_rc_pingpong", ["-s", size, "-m", mtu, "-n", "200", "-c"])
                 for size, mtu in (("1", "1024"), ("4097", "256"), ("1000000", "4096"))]
    for program, options in variants:
        name = "_".join([program, *options]).replace("-", "")

        def test(self, program=program, options=options):
            self.pingpong(program, *options)

        setattr(PingPong, f"test_{name}", test)


add_tests()
