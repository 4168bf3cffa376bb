"""``kubeletpy plan``: what this node would do with a pod or with a change to one. Read-only."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from kubeletpy.cli import agent_socket
from kubeletpy.cli.explain import names

_TEMPLATES = {
    "CronJob": ("jobTemplate", "spec", "template"),
    "DaemonSet": ("template",),
    "Deployment": ("template",),
    "Job": ("template",),
    "ReplicaSet": ("template",),
    "ReplicationController": ("template",),
    "StatefulSet": ("template",),
}
"""Where the pods of a workload are described, below its spec."""


class Unreadable(Exception):
    """What was given is no pod; the message says why."""


def main(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code: 1 when nothing can be said, or a pod would not
    run."""
    asked = parser()
    given = asked.parse_args(arguments)
    if given.patch is not None and given.patch_file is not None:
        asked.error("give either --patch or --patch-file")
    patched = given.patch is not None or given.patch_file is not None
    if (given.file is None) != (given.pod is not None and patched) or (given.file and patched):
        asked.error("give either -f FILE, or POD and --patch or --patch-file")
    try:
        path = agent_socket.find(given.socket)
        answers = [agent_socket.post(path, request, "plan") for request in requests(given)]
    except (agent_socket.NoAgent, agent_socket.NotFound, Unreadable) as error:
        print(f"kubeletpy plan: {error}", file=sys.stderr)
        return 1
    if given.output == "json":
        print(json.dumps(answers, indent=2))
    else:
        from kubeletpy.foresee import render

        sys.stdout.write("\n".join(render.plan(answer) for answer in answers))
    from kubeletpy.foresee.model import NOT_TO_BE

    return int(any(answer["outcome"] in NOT_TO_BE for answer in answers))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy plan",
        description="Show what the agent on this machine would do with a pod, or with a change to "
        "one: whether it is admitted, what restarts and why, what is pulled and mounted, who is "
        "preempted, and about how long it takes. Nothing is changed. A pod of the same name that "
        "runs here is compared with the file.",
    )
    made.add_argument("pod", nargs="?", metavar="POD", help="NAME, or NAMESPACE/NAME, to patch")
    made.add_argument("-n", "--namespace", default="default")
    made.add_argument(
        "-f", "--file", help="a manifest (YAML or JSON; - reads standard input): pods, workloads"
    )
    made.add_argument("-p", "--patch", help="a patch of the pod (YAML or JSON)")
    made.add_argument("--patch-file", help="a file with that patch (- reads standard input)")
    made.add_argument(
        "--type",
        choices=["strategic", "merge", "json"],
        default="strategic",
        help="the kind of patch, as of kubectl patch: strategic merge patch (the default), JSON "
        "merge patch or JSON patch (a list of operations)",
    )
    made.add_argument("-o", "--output", choices=["text", "json"], default="text")
    made.add_argument("--socket", help="the agent's socket (ROOT_DIR/explain.sock)")
    return made


def requests(given: argparse.Namespace) -> list[dict[str, Any]]:
    """What to ask the agent. Raises Unreadable."""
    if given.file is None:
        namespace, name = names(given)
        text = given.patch if given.patch is not None else _read(given.patch_file)
        patches = _documents(text, given.patch_file or "the patch")
        if len(patches) > 1:
            raise Unreadable("there is more than one document in the patch")
        return [{"namespace": namespace, "name": name, "patch": patches[0], "type": given.type}]
    pods = [
        pod
        for document in _documents(_read(given.file), given.file)
        for pod in pods_of(document, given.namespace)
    ]
    if not pods:
        raise Unreadable(f"{given.file}: there is no pod, and nothing that makes pods, in it")
    return [{"pod": pod} for pod in pods]


def _read(file: str) -> str:
    """A file, or standard input."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{file}: {error}") from error


def _documents(text: str, source: str) -> list[Any]:
    try:
        found = [each for each in yaml.safe_load_all(text) if each is not None]
    except (yaml.YAMLError, RecursionError) as error:
        raise Unreadable(f"{source}: {error}") from error
    return found or [{}]


def pods_of(document: Any, namespace: str) -> Iterator[dict[str, Any]]:
    """The pods that an object is, holds or makes; of other kinds none."""
    if not isinstance(document, dict):
        raise Unreadable("a document is no object")
    kind = document.get("kind")
    if kind == "List" or str(kind).endswith("List"):
        for item in document.get("items") or ():
            yield from pods_of(item, namespace)
        return
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    placed = {**metadata, "namespace": metadata.get("namespace") or namespace}
    if kind == "Pod":
        yield {**document, "metadata": placed}
    elif kind in _TEMPLATES:
        template: Any = document.get("spec")
        for field in _TEMPLATES[kind]:
            template = template.get(field) if isinstance(template, dict) else None
        if not isinstance(template, dict):
            raise Unreadable(f"{kind} {metadata.get('name')} has no pod template")
        of_template = template.get("metadata")
        more = of_template if isinstance(of_template, dict) else {}
        yield {
            **template,
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**more, "name": metadata.get("name"), "namespace": placed["namespace"]},
        }
