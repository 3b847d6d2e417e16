"""Ceph, whose daemons and clients talk to each other by its RDMA messenger."""

import pathlib
import random
import tempfile
import textwrap
import uuid

from harness import ADDRESS, TIMEOUT, VerbsTest, free_port

SIZE = 20 << 20


class Ceph(VerbsTest):
    """A cluster of one monitor and one OSD that keeps its objects in memory."""

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.port = free_port()
        self.conf = self.directory / "ceph.conf"
        self.keyring = self.directory / "keyring"
        self.fsid = str(uuid.uuid4())
        self.conf.write_text(self.settings())

    def settings(self):
        return textwrap.dedent(f"""\
            [global]
            fsid = {self.fsid}
            mon_host = v1:{ADDRESS}:{self.port}
            ms_bind_msgr2 = false
            ms_type = async+rdma
            ms_async_rdma_device_name = softrnic0
            ms_async_rdma_send_buffers = 128
            ms_async_rdma_receive_buffers = 512
            ms_async_rdma_receive_queue_len = 256
            public_addr = {ADDRESS}
            cluster_addr = {ADDRESS}
            keyring = {self.keyring}
            osd_pool_default_size = 1
            osd_pool_default_min_size = 1
            osd_crush_chooseleaf_type = 0
            osd_objectstore = memstore
            mon_allow_pool_size_one = true
            mon_data_avail_warn = 2
            mon_data_avail_crit = 1
            mon_data = {self.directory}/mon
            osd_data = {self.directory}/osd
            run_dir = {self.directory}
            log_file =
            log_to_stderr = true
            admin_socket =
            pid_file =
            """)

    def ceph(self, *words, timeout=TIMEOUT):
        return self.run_ok(["ceph", "-c", self.conf, *words], timeout=timeout)

    def key(self, name, *capabilities):
        words = [word for capability in capabilities for word in ("--cap", *capability)]
        self.run_ok(["ceph-authtool", self.keyring, "--gen-key", "-n", name, *words])

    def start_monitor(self):
        self.run_ok(["ceph-authtool", "--create-keyring", self.keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"])
        self.key("client.admin", ("mon", "allow *"), ("osd", "allow *"), ("mgr", "allow *"))
        self.key("osd.0", ("mon", "allow profile osd"), ("osd", "allow *"))
        monmap = self.directory / "monmap"
        self.run_ok(["monmaptool", "--create", "--fsid", self.fsid, "--addv", "a", f"[v1:{ADDRESS}:{self.port}]", monmap])
        daemon = ["ceph-mon", "-c", self.conf, "-i", "a"]
        self.run_ok([*daemon, "--mkfs", "--monmap", monmap, "--keyring", self.keyring])
        return self.start([*daemon, "-f"])

    def start_osd(self):
        osd = str(uuid.uuid4())
        self.ceph("osd", "new", osd, "0")
        (self.directory / "osd").mkdir()
        daemon = ["ceph-osd", "-c", self.conf, "-i", "0"]
        self.run_ok([*daemon, "--mkfs", "--osd-uuid", osd])
        return self.start([*daemon, "-f"])

    def test_objects_that_go_to_an_osd_and_come_back(self):
        self.start_monitor()
        self.start_osd()
        self.ceph("osd", "pool", "create", "pool", "8")
        there, back = self.directory / "there", self.directory / "back"
        there.write_bytes(random.Random(39).randbytes(SIZE))
        rados = ["rados", "-c", self.conf, "-p", "pool"]
        self.run_ok([*rados, "put", "object", there])
        self.run_ok([*rados, "get", "object", back])
        self.assertEqual(back.read_bytes(), there.read_bytes())
        # Compares what it reads with what it wrote.
        self.run_ok([*rados, "bench", "2", "write", "-b", "65536", "--no-cleanup"])
        self.run_ok([*rados, "bench", "2", "seq"])
