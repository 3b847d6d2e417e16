"""The exported symbols, and programs that look for them in different ways."""

import ctypes
import errno
import re
import subprocess

from harness import DISTRIBUTION, LIBRARY, ROOT, VerbsTest

TYPES = {"FUNC", "OBJECT"}

# The private nodes that there have been, and a name that a release with each has brought. Those up to 57 are in 34 as well,
# whose last release has them.
PRIVATE_NODES = {
    25: "ibv_cmd_query_device_any",
    33: "ibv_cmd_query_device_any",
    34: "ibv_cmd_create_cq_ex2",
    57: "ibv_wr_opcode_str",
    59: "ibv_cmd_alloc_dmah",
    64: "ibv_dmabuf_heap_alloc",
    65: "ibv_cmd_create_comp_cntr",
}


# What librspreload of rdma-core stands for, but for `read`: a thread that waits for an event can be cancelled there.
TAKEN_BY_RSPRELOAD = set("""
accept accept4 bind close connect dup2 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_wait fcntl fork
getpeername getsockname getsockopt listen poll readv recv recvfrom recvmsg select send sendfile sendmsg sendto
setsockopt shutdown socket write writev
""".split())


class Exports(VerbsTest):
    def test_names_types_and_versions_are_those_of_the_committed_list(self):
        listed = set()
        for line in (ROOT / "src/ibverbs/exports.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                listed.add(tuple(line.split()))
        built, defaults = set(), []
        out = subprocess.run(["readelf", "--dyn-syms", "-W", LIBRARY], check=True, capture_output=True, text=True).stdout
        for line in out.splitlines():
            fields = line.split()
            # Num Value Size Type Bind Vis Ndx Name; default versions are marked with @@, undefined symbols with UND.
            if len(fields) >= 8 and fields[3] in TYPES and fields[6] not in ("UND", "ABS"):
                name, default, version = fields[7].partition("@@")
                if not default:
                    name, _, version = fields[7].partition("@")
                self.assertTrue(version, f"{fields[7]} has no version")
                built.add((version, fields[3], name))
                defaults += [name] if default else []
        self.assertEqual(built, listed)
        self.assertEqual(sorted(defaults), sorted({name for _, _, name in listed}), "one default version for each")

    def test_every_generation_of_rdma_core_finds_its_private_node(self):
        library = ctypes.CDLL(str(LIBRARY))
        library_of = ctypes.CDLL(None).dlvsym
        library_of.restype = ctypes.c_void_p
        library_of.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
        for generation, newest in PRIVATE_NODES.items():
            version = f"IBVERBS_PRIVATE_{generation}".encode()
            for name in (f"verbs_register_driver_{generation}", "ibv_query_gid_type", newest):
                address = library_of(library._handle, name.encode(), version)
                self.assertTrue(address, f"{name}@{version}")
            # Stubs answer in every node.
            unsupported = library_of(library._handle, b"ibv_cmd_reg_mr", version)
            self.assertEqual(ctypes.CFUNCTYPE(ctypes.c_int)(unsupported)(), errno.EOPNOTSUPP)
            older = library_of(library._handle, newest.encode(), b"IBVERBS_PRIVATE_34")
            self.assertEqual(bool(older), generation <= 57, newest)

    def test_the_list_has_every_default_symbol_of_the_distribution(self):
        out = subprocess.run(["readelf", "--dyn-syms", "-W", DISTRIBUTION], check=True, capture_output=True, text=True)
        theirs = set(re.findall(r" (\w+)@@(IBVERBS_[\w.]+)", out.stdout))
        ours = (ROOT / "src/ibverbs/exports.txt").read_text()
        missing = [f"{name}@{version}" for name, version in sorted(theirs)
                   if not re.search(rf"(?m)^{re.escape(version)} \w+ {re.escape(name)}$", ours)]
        self.assertEqual(missing, [])

    def test_the_library_says_who_it_is_and_stays_loaded(self):
        out = subprocess.run(["readelf", "-d", "-W", LIBRARY], check=True, capture_output=True, text=True).stdout
        self.assertIn("[libibverbs.so.1]", out)
        self.assertIn("NODELETE", out)

    def test_its_sockets_cannot_be_taken_by_what_is_preloaded(self):
        out = subprocess.run(["readelf", "--dyn-syms", "-W", LIBRARY], check=True, capture_output=True, text=True).stdout
        called = set(re.findall(r" UND (\w+)", out))
        self.assertIn("read", called)
        self.assertEqual(sorted(called & TAKEN_BY_RSPRELOAD), [])

    def test_pure_functions_answer_like_the_distributions(self):
        program = self.compile("same_as_distribution.c")
        self.run_ok([program, LIBRARY, DISTRIBUTION])

    def test_a_program_linked_with_the_distributions_library(self):
        program = self.compile("every_call.c", "-libverbs", "-lpthread")
        self.assertIn("every call is all right", self.run_ok([program]))

    def test_a_program_that_uses_calls_newer_than_the_distribution(self):
        program = self.compile("other_calls.c", "-libverbs", "-ldl")
        self.assertIn("every other call is all right", self.run_ok([program]))

    def test_a_program_that_uses_dlvsym(self):
        program = self.compile("dlvsym.c", "-ldl")
        self.assertIn("all right", self.run_ok([program]))

    def test_loading_and_unloading_again_and_again(self):
        program = self.compile("dlvsym.c", "-ldl")
        self.assertIn("all right", self.run_ok([program, "20"]))
