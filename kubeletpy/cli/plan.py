"""``kubeletpy plan``: what this node would do with a pod or with a change to one. Read-only."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
    """The input is no pod; the message contains the reason."""


def main(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code: 1 without an answer, or a pod would not
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
        answers = [foreseen(path, request) for request in requests(given)]
    except (agent_socket.NoAgent, agent_socket.NoSuchPod, Unreadable) as error:
        print(f"kubeletpy plan: {error}", file=sys.stderr)
        return 1
    if given.output == "json":
        print(json.dumps(answers, indent=2))
    else:
        from kubeletpy.foresee import render

        texts = [render.plan(answer, evictions=given.evictions) for answer in answers]
        sys.stdout.write("\n".join(texts))
    from kubeletpy.foresee.model import NOT_TO_BE

    return int(any(answer["outcome"] in NOT_TO_BE for answer in answers))


def foreseen(socket: Path, request: Request) -> Any:
    """The agent's answer, with the API's state (under `up`) of the objects that a new pod needs.

    Raises NoAgent, NotFound.
    """
    answer = agent_socket.post(socket, request.body, "plan")
    if not answer.get("needs"):
        return answer
    from kubeletpy.cli import own_api
    from kubeletpy.foresee import needs

    kubeconfig = own_api.kubeconfig(socket)
    if kubeconfig is None:
        return needs.settled(answer, {}, request.made)
    try:
        states = own_api.once(
            kubeconfig, lambda api: api.need_states(answer["namespace"], answer["needs"])
        )
    except own_api.OwnApiUnavailable as error:
        print(f"kubeletpy plan: existence of objects not checked: {error}", file=sys.stderr)
        states = {}
    return needs.settled(answer, states, request.made)


class Request(NamedTuple):
    """A request to the agent, and the claims that are made together with the pod."""

    body: dict[str, Any]
    made: frozenset[str] = frozenset()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy plan",
        description="Show what the agent on this machine would do with a pod, or with a change to "
        "one: whether it is admitted, what restarts and why, what is pulled and mounted, who is "
        "preempted, and about how long it takes. Nothing is changed. A pod of the same name that "
        "runs here is compared with the file.",
    )
    made.add_argument("pod", nargs="?", metavar="POD", help="NAME, NAMESPACE/NAME or UID, to patch")
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
    made.add_argument(
        "--evictions",
        action="store_true",
        help="show in which order pods would be evicted even if the node is short of nothing",
    )
    made.add_argument("-o", "--output", choices=["text", "json"], default="text")
    made.add_argument("--socket", help="the agent's socket (ROOT_DIR/explain.sock)")
    return made


def requests(given: argparse.Namespace) -> list[Request]:
    """The question to the agent. Raises Unreadable."""
    if given.file is None:
        namespace, name = names(given)
        text = given.patch if given.patch is not None else _read(given.patch_file)
        patches = _documents(text, given.patch_file or "the patch")
        if len(patches) > 1:
            raise Unreadable("there is more than one document in the patch")
        asked = {"namespace": namespace, "name": name, "patch": patches[0], "type": given.type}
        return [Request(asked)]
    found = [
        Request({"pod": pod}, claims)
        for document in _documents(_read(given.file), given.file)
        for pod, claims in pods_of(document, given.namespace)
    ]
    if not found:
        raise Unreadable(f"{given.file}: there is no pod, and nothing that makes pods, in it")
    return found


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


def pods_of(document: Any, namespace: str) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """The pods that an object is, holds or makes, each with the claims that are made for it.

    None for objects of other kinds.
    """
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
        yield {**document, "metadata": placed}, frozenset()
    elif kind in _TEMPLATES:
        template: Any = document.get("spec")
        for field in _TEMPLATES[kind]:
            template = template.get(field) if isinstance(template, dict) else None
        if not isinstance(template, dict):
            raise Unreadable(f"{kind} {metadata.get('name')} has no pod template")
        of_template = template.get("metadata")
        more = of_template if isinstance(of_template, dict) else {}
        claims = _claims(document) if kind == "StatefulSet" else {}
        pod = {
            **template,
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**more, "name": metadata.get("name"), "namespace": placed["namespace"]},
        }
        yield (_with_claims(pod, claims) if claims else pod), frozenset(claims.values())


def _claims(stateful_set: dict[str, Any]) -> dict[str, str]:
    """Volume name -> claim of the first pod, for each of a StatefulSet's volumeClaimTemplates."""
    spec, name = stateful_set["spec"], (stateful_set.get("metadata") or {}).get("name")
    ordinals = spec.get("ordinals")
    first = ordinals.get("start") or 0 if isinstance(ordinals, dict) else 0
    templates = spec.get("volumeClaimTemplates")
    metadata = [
        each.get("metadata")
        for each in (templates if isinstance(templates, list) else ())
        if isinstance(each, dict)
    ]
    volumes = [str(each.get("name")) for each in metadata if isinstance(each, dict)]
    return {volume: f"{volume}-{name}-{first}" for volume in volumes}


def _with_claims(pod: dict[str, Any], claims: dict[str, str]) -> dict[str, Any]:
    """The pod with a volume for each claim, in place of its own volumes of these names."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod  # the agent reports its fault
    own = spec.get("volumes")
    others = [
        each
        for each in (own if isinstance(own, list) else ())
        if not (isinstance(each, dict) and each.get("name") in claims)
    ]
    of_claims = [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
        for volume, claim in claims.items()
    ]
    return {**pod, "spec": {**spec, "volumes": [*others, *of_claims]}}
