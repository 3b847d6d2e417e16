"""Programs written for EFA, on devices that imitate one (`--like efa`)."""

import pathlib
import re
import subprocess
import tempfile
import time

from cm import CmTest
from harness import LIBRARY, ROOT, VerbsTest, free_port
from test_pyverbs import SHIPPED, copy_tests

LIKE = ["--like", "efa"]
# Processes of one machine would otherwise use libfabric's own shared memory, and nothing of ours.
LIBFABRIC = {"FI_EFA_ENABLE_SHM_TRANSFER": "0", "FI_PROVIDER": "efa"}


class Exports(VerbsTest):
    def test_libefa_has_the_names_and_versions_of_the_committed_list(self):
        lines = (ROOT / "src/efa/exports.txt").read_text().splitlines()
        listed = {tuple(line.split()) for line in lines if line and not line.startswith("#")}
        library = LIBRARY.with_name("libefa.so.1")
        out = subprocess.run(["readelf", "--dyn-syms", "-W", library], check=True, capture_output=True, text=True).stdout
        built = set(re.findall(r"FUNC +GLOBAL +DEFAULT +\d+ (\w+)@@(\w+\.\d)", out))
        self.assertEqual({(version, name) for name, version in built}, listed)


class Libfabric(CmTest):
    """Debian's libfabric 1.17."""

    def test_fi_info_finds_both_endpoints_of_the_device(self):
        out = " ".join(self.run_ok(["fi_info", "-p", "efa", "-v"], run=LIKE, **LIBFABRIC).split())
        for text in ("rdmap0s31-rdm", "rdmap0s31-dgrm", "type: FI_EP_RDM", "type: FI_EP_DGRAM", "vendor_id: 0x1d0f",
                     "driver: efa"):
            self.assertIn(text, out)

    def test_rdm_endpoints_move_what_they_are_given(self):
        self.pingpong("rdm")

    def test_over_sockets_too(self):
        self.pingpong("rdm", SOFTRNIC_SHM="off")

    def test_dgram_endpoints(self):
        self.pingpong("dgram")

    def test_rdm_endpoints_on_a_network_that_loses_and_reorders(self):
        fault = ["--fault", "seed=11,drop=2%,dup=1%,reorder=2%"]
        self.pingpong("rdm", run=fault, SOFTRNIC_SHM="off")

    def pingpong(self, endpoint, run=(), **extra):
        """Each side compares what it gets with what the other one sent (-c)."""
        port = free_port()
        sizes = ["-S", "all"] if endpoint == "rdm" else []
        words = ["fi_pingpong", "-p", "efa", "-e", endpoint, "-c", "-I", "5", *sizes]
        options = {"run": [*LIKE, *run], **LIBFABRIC, **extra}
        server = self.serve_by_tcp([*words, "-B", port], port, **options)
        outputs = self.finish(server, self.start([*words, "-P", port, "127.0.0.1"], **options), timeout=120)
        self.assertNotIn("data error", "".join(outputs).lower())
        if endpoint == "rdm":
            self.assertRegex(outputs[1], r"(?m)^4m +5 +=5 ")


class Pyverbs(VerbsTest):
    """rdma-core's tests of EFA, as Debian ships them."""

    def test_rdma_cores_tests_of_efa(self):
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        copy_tests(SHIPPED, directory.name)
        out = self.run_ok(
            ["/usr/bin/python3", "-B", "run_tests.py", "-v", "test_efadv", "test_efa_srd", "--dev", "rdmap0s31",
             "--gid", "0"], run=LIKE, timeout=120, cwd=pathlib.Path(directory.name))
        self.assertRegex(out, r"Ran 16 tests in")
        self.assertRegex(out, r"(?m)^OK$", "none failed, and none was skipped")


class Identity(VerbsTest):
    def test_the_device_is_one_of_amazon(self):
        out = " ".join(self.run_ok(["ibv_devinfo", "-v"], run=LIKE).split())
        for text in ("hca_id: rdmap0s31", "transport: unspecified (4)", "vendor_id: 0x1d0f", "vendor_part_id: 61345",
                     "max_msg_sz: 0x22e0", "link_layer: Unspecified"):
            self.assertIn(text, out)

    def test_a_device_that_imitates_another_has_nothing_of_it(self):
        for run in ([], ["--like", "mlx5"]):
            program = self.start(["fi_info", "-p", "efa"], run=run, **LIBFABRIC)
            self.assertNotEqual(program.wait(time.monotonic() + 60), 0, program.output())


class OpenMpi(VerbsTest):
    """OpenMPI 4.1 over libfabric's efa."""

    def ring(self, run=()):
        program = self.compile("ring.c", compiler="mpicc")
        # Nothing but libfabric, and nothing in libfabric but the device.
        selection = ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "efa",
                     "--mca", "btl", "self", "--mca", "osc", "pt2pt"]
        out = self.run_ok(["mpirun", "--allow-run-as-root", "--oversubscribe", *selection, "-n", "4", program],
                          run=[*LIKE, *run], timeout=180, **LIBFABRIC)
        self.assertIn("all right with 4 ranks", out)

    def test_four_ranks_with_an_address_each(self):
        self.ring()

    def test_four_ranks_that_share_an_address(self):
        self.ring(["--device", "udp:127.77.1.9"])
