#!/usr/bin/env python3
"""Checks the manifests of examples/kubernetes: by the schemas of the oldest and the newest Kubernetes that are to be
had, strictly, and that no pod asks for a privilege. Exit status 3: pip cannot get the schemas."""

import copy
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "kubernetes-validate==1.37.0"
VERSIONS = ("1.25", "1.37")
KEPT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "programs" / PACKAGE.replace("==", "-")
# What a pod may have besides the schema's word: nothing that a cluster gives to the trusted alone.
USER = {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
UNPRIVILEGED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
TRUSTED = {"hostNetwork", "hostPID", "hostIPC", "hostPath", "hostPort", "privileged", "devices", "resourceClaims"}


def get():
    if KEPT.is_dir():
        return True
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT.parent, prefix=".manifests-") as new:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore",
               "--no-compile", "--only-binary=:all:", "--target", f"{new}/kept", PACKAGE]
        if subprocess.run(pip).returncode:
            return False
        os.rename(f"{new}/kept", KEPT)
    return True


def refused(document, versions=VERSIONS):
    """What the schemas say against a document, a list."""
    import kubernetes_validate as kubernetes

    found = []
    for version in versions:
        try:
            kubernetes.validate(document, version, strict=True)
        except (kubernetes.ValidationError, kubernetes.SchemaNotFoundError) as error:
            at = ".".join(map(str, getattr(error, "path", ())))
            found.append(f"Kubernetes {version}: {at}: {error.message}")
    return found


def privileges(document):
    """What a document asks for that only the trusted get, a list."""
    spec, found = document["spec"], []
    pod = spec if document["kind"] == "Pod" else spec.get("template", {}).get("spec")
    if pod is None:
        return []
    if pod.get("securityContext") != USER:
        found.append(f"the pod's securityContext is not {USER}")
    if pod.get("automountServiceAccountToken") is not False:
        found.append("the pod has an account of the cluster")
    for container in pod["containers"] + pod.get("initContainers", []):
        if container.get("securityContext") != UNPRIVILEGED:
            found.append(f"the securityContext of {container['name']} is not {UNPRIVILEGED}")
        asked = {name for kind in container.get("resources", {}).values() for name in kind}
        if asked - {"cpu", "memory"}:
            found.append(f"{container['name']} asks for {asked}")
    return found + [f"the pod has {name}" for name in TRUSTED & set(keys(pod))]


def keys(value):
    if isinstance(value, dict):
        for key, below in value.items():
            yield key
            yield from keys(below)
    elif isinstance(value, list):
        for below in value:
            yield from keys(below)


def misspelt(document):
    """Copies of a document, each with the name of one of its fields misspelt, and where."""
    def paths(value, at):
        if isinstance(value, dict):
            for key, below in value.items():
                yield (*at, key)
                yield from paths(below, (*at, key))
        elif isinstance(value, list):
            for place, below in enumerate(value):
                yield from paths(below, (*at, place))

    # Names that the author of a manifest chooses, and so right whatever they are.
    free = {"labels", "matchLabels", "selector", "requests", "limits"}
    for *at, key in paths(document, ()):
        if at[:1] != ["spec"] or at[-1] in free:
            continue
        changed = copy.deepcopy(document)
        inner = changed
        for step in at:
            inner = inner[step]
        inner[f"{key}x"] = inner.pop(key)
        yield ".".join(map(str, (*at, key))), changed


def main():
    if not get():
        return 3
    sys.path.insert(0, str(KEPT))
    import yaml

    failed, documents = 0, []
    for file in sorted((ROOT / "examples/kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            documents.append(document)
            for problem in refused(document) or privileges(document):
                print(f"{file.name}: {document['kind']} {document['metadata']['name']}: {problem}")
                failed = 1
    if failed:
        return 1
    # A check that cannot fail says nothing.
    (job,) = (document for document in documents if document["kind"] == "Job")
    tried = 0
    for at, changed in misspelt(job):
        if not refused(changed, VERSIONS[-1:]):
            print(f"nothing is found where {at} of the job is misspelt")
            failed = 1
        tried += 1
    print(f"{len(documents)} documents; {tried} misspelt fields are found")
    return failed


sys.exit(main())
