"""Starting the agents: ours on SoftRNIC in the guest's network, the peer's on rxe in the guest."""

import os
import subprocess

from agent import Agent
from ends import End
from guest import ROOT

INTERFACE = "eth0"  # of the namespace that the guest's network keeps for us


class Near:
    """Our side: a process with SoftRNIC as its libibverbs, in the namespace beside the guest."""

    def __init__(self, guest, program, library, directory):
        self.guest, self.program, self.library, self.directory = guest, program, library, directory

    def start(self, name, link, family, faults=None, options=""):
        """An agent whose capture is `name`.pcapng and whose log is `name`.log; `options` are those of the device."""
        argv = ["ip", "netns", "exec", self.guest.namespace, str(self.program)]
        with open(self.directory / f"{name}.log", "w") as log:
            env = self.environment(link, family, faults, self.directory / f"{name}.pcapng", options)
            return Agent("our agent", argv, env, log)

    def environment(self, link, family, faults=None, capture=None, options=""):
        """What a program needs to run on SoftRNIC beside the guest."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("SOFTRNIC_")}
        env["LD_LIBRARY_PATH"] = str(self.library)
        place = self.guest.near_address[family] if link == "udp" else INTERFACE
        env["SOFTRNIC_DEVICES"] = f"{link}:{place}{options}"
        env["SOFTRNIC_LOG"] = "info"
        if faults:
            env["SOFTRNIC_FAULT"] = faults
        if capture:
            env["SOFTRNIC_PCAP"] = str(capture)
        return env


class Far:
    """The peer: one agent in the guest, whose objects stay for all columns."""

    def __init__(self, guest, program, directory, wrapper=()):
        self.guest, self.wrapper, self.directory = guest, wrapper, directory
        self.argv = [*wrapper, program]
        self.agent, self._ends = None, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.restart()

    def end(self, family):
        """The end that uses this address family."""
        if not self.agent:
            with open(self.directory / "peer.log", "a") as log:
                self.agent = Agent("the peer's agent", self.guest.command(*self.argv), log=log)
        if family not in self._ends:
            self._ends[family] = End(self.agent, len(self._ends), self.guest.address[family])
        return self._ends[family]

    def near_address(self, family):
        """Our address on the peer's network."""
        return self.guest.near_address[family]

    def restart(self):
        """End the agent; end() starts a new one."""
        if self.agent:
            self.agent.close()
        self.agent, self._ends = None, {}


def build_library():
    """Build our libibverbs, and the command beside it; the directory to put into LD_LIBRARY_PATH."""
    # With the worker of the labs and the target, as all tests build it: another choice could compile dependencies anew.
    names = ("softrnic-cli", "softrnic-ibverbs", "softrnic-interpose", "softrnic-xdp-tests", "nvmf-target")
    packages = [word for name in names for word in ("-p", name)]
    subprocess.run(["cargo", "build", "--locked", "--release", *packages], check=True, cwd=ROOT)
    subprocess.run([ROOT / "tools/link-ibverbs", "release"], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release/verbs"
