"""librdmacm of the newest rdma-core that Debian has, and its librspreload, under programs of this machine."""

import packages
from cm import CmTest, is_listening, rdma_port
from harness import ADDRESS, LONG_TIMEOUT
from test_newest_rdma_core import PACKAGES


class NewestRdmacm(CmTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = packages.debian("sid", PACKAGES)

    def program(self, name, preload=False):
        """What to run a program with. What is preloaded needs the C library of its own suite, which `softrnic` has
        not: the loader there takes it after SoftRNIC's."""
        loader = packages.on(self.root)
        if preload:
            (library,) = self.root.glob("usr/lib/*/rsocket/librspreload.so")
            loader += ["--preload", library]
        return [*loader, f"/usr/bin/{name}"]

    def pair(self, name, port, server, client, space="tcp"):
        outs = self.run_cm_pair([*self.program(name), *server], [*self.program(name), *client, ADDRESS], port, space,
                                timeout=LONG_TIMEOUT)
        return outs

    def test_rping(self):
        port = rdma_port()
        self.pair("rping", port, ["-s", "-C", "3", "-p", port], ["-c", "-C", "3", "-V", "-p", port, "-a"])

    def test_ucmatose(self):
        for options in ([], ["-m"]):
            port = rdma_port()
            words = ["-c", "5", "-p", port, *options]
            for out in self.pair("ucmatose", port, words, [*words, "-s"]):
                self.assertIn("return status 0", out)

    def test_udaddy(self):
        for out in self.pair("udaddy", 7174, [], ["-s"], space="udp"):
            self.assertIn("return status 0", out)

    def test_rstream(self):
        port = rdma_port()
        self.pair("rstream", port, ["-p", port], ["-p", port, "-s"])

    def test_iperf3_by_librspreload(self):
        port = rdma_port()
        words = [*self.program("iperf3", preload=True), "-p", port]
        server = self.start([*words, "-s", "-1", "-B", ADDRESS])
        self.wait_until(lambda: is_listening(port), server)
        _, out = self.finish(server, self.start([*words, "-c", ADDRESS, "-t", "1"]))
        self.assertRegex(out, r"[1-9][\d.]* [MG]bits/sec.*receiver")
