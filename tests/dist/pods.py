"""Runs pods of examples/kubernetes as containers, as a cluster with one network for all pods would.

Each pod has a network namespace, whose eth0 is one end of a cable to the other pod; names are in /etc/hosts.
"""

import contextlib
import os
import subprocess
import time
from pathlib import Path

import yaml

import container

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/kubernetes"
ADDRESSES = ("10.78.0.1", "10.78.0.2")
SECONDS = 120


class Pods:
    """The containers of a manifest's pods: those of the Pods, and for each index those of an indexed Job."""

    def __init__(self, manifest, environment, variables):
        self.environment, self.variables, self.names, self.containers = environment, variables, [], []
        for document in yaml.safe_load_all((EXAMPLES / manifest).read_text()):
            name, spec = document["metadata"]["name"], document["spec"]
            if document["kind"] == "Pod":
                self.add(name, [name], spec, {})
            elif document["kind"] == "Job":
                pod = spec["template"]["spec"]
                for index in range(spec["completions"]):
                    host = f"{name}-{index}"
                    self.add(host, [host, f"{host}.{pod['subdomain']}"], pod, {"JOB_COMPLETION_INDEX": str(index)})

    def add(self, host, names, spec, variables):
        pod = len(self.names)
        self.names.append(names)
        user = spec["securityContext"]
        for one in spec["containers"]:
            given = {item["name"]: item["value"] for item in one.get("env", [])} | self.variables | variables
            process = {
                "cwd": one.get("workingDir", "/"),
                "user": {"uid": user["runAsUser"], "gid": user["runAsGroup"]},
                "env": [*self.environment, "HOME=/", f"HOSTNAME={host}", *(f"{key}={value}" for key, value in given.items())],
            }
            command = [*one["command"], *one.get("args", [])]
            self.containers.append((pod, one["name"], command, {"hostname": host, **process}))


def run(image, manifest, variables):
    """What is wrong with the pods of a manifest, a list; `variables` replace those in it."""
    pods = Pods(manifest, image.environment, variables)
    hosts = "127.0.0.1 localhost\n" + "".join(
        f"{address} {' '.join(names)}\n" for address, names in zip(ADDRESSES, pods.names))
    with cable() as networks:
        return together(image, hosts, [
            (name, networks[pod], command, process) for pod, name, command, process in pods.containers])


def pair(image, server, client):
    """What is wrong with two commands, in a container each with a cable between them."""
    process = {"env": image.environment, "user": image.user}
    with cable() as networks:
        ends = zip(("server", "client"), networks, (server, client))
        return together(image, "127.0.0.1 localhost\n", [(*end, process) for end in ends])


def together(image, hosts, containers):
    """Runs containers at the same time. One that fails is started again, as the manifests say (OnFailure)."""
    wrong, until = [], time.monotonic() + SECONDS
    with contextlib.ExitStack() as stack:
        running = []
        for name, network, command, process in containers:
            def start(command=command, network=network, process=process):
                return stack.enter_context(container.Container(image.root, None, command, network, hosts, **process))
            running.append([name, start, start()])
        while running:
            for one in list(running):
                name, start, started = one
                if started.running.poll() is None:
                    if time.monotonic() > until:
                        started.kill()
                        wrong.append(f"{name} does not end\n{started.wait()[1]}")
                        running.remove(one)
                    continue
                status, output = started.wait()
                if status == 0:
                    running.remove(one)
                elif time.monotonic() > until:
                    wrong.append(f"{name} ended with {status}\n{output}")
                    running.remove(one)
                else:
                    one[2] = start()
            time.sleep(0.1)
    return wrong


@contextlib.contextmanager
def cable():
    """Two network namespaces, with a cable between them; yields their paths."""
    names = [f"softrnic-{os.getpid()}-{end}" for end in (0, 1)]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("-n", names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for name, address in zip(names, ADDRESSES):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                ip("-n", name, "link", "set", interface, "up")
        yield [f"/run/netns/{name}" for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)
