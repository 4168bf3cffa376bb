"""``kubeletpy plan``: what this node would do with a pod or with a change to one. Read-only."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
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
    made = parser()
    parsed = made.parse_args(arguments)
    if parsed.patch is not None and parsed.patch_file is not None:
        made.error("give either --patch or --patch-file")
    patched = parsed.patch is not None or parsed.patch_file is not None
    if (not parsed.file) != (parsed.pod is not None and patched) or (parsed.file and patched):
        made.error("give either -f FILE, or POD and --patch or --patch-file")
    try:
        path = agent_socket.find(parsed.socket)
        answers = [foreseen(path, request) for request in requests(parsed)]
    except (agent_socket.NoAgent, agent_socket.NoSuchPod, Unreadable) as error:
        print(f"kubeletpy plan: {error}", file=sys.stderr)
        return 1
    if parsed.output == "json":
        print(json.dumps(answers, indent=2))
    else:
        from kubeletpy.observe.foresee import render

        texts = [render.plan(answer, evictions=parsed.evictions) for answer in answers]
        sys.stdout.write("\n".join(texts))
    from kubeletpy.observe.foresee.model import NOT_TO_BE

    return int(any(answer["outcome"] in NOT_TO_BE for answer in answers))


def foreseen(socket: Path, request: Request) -> Any:
    """The agent's answer, with the state of the objects that a new pod needs.

    Objects of the same files exist once they are applied; the API of `up` is read for the others.
    Raises NoAgent, NotFound.
    """
    from kubeletpy.cli import own_api
    from kubeletpy.observe.foresee import start

    answer = agent_socket.post(socket, request.body, "plan")
    kubeconfig = own_api.kubeconfig(socket)
    objects = request.objects
    needed = answer.get("needs") or ()
    read = [each for each in needed if (each["kind"], each["name"]) not in objects]
    states = {}
    if read and kubeconfig is not None:
        try:
            states = own_api.once(
                kubeconfig, lambda api: api.need_states(answer["namespace"], read)
            )
        except own_api.OwnApiUnavailable as error:
            print(f"kubeletpy plan: existence of objects not checked: {error}", file=sys.stderr)
    if needed:
        answer = start.settled(answer, states, request.made, objects)
    if request.workload is None:
        return answer
    return start.of_workload(answer, *request.workload, served=kubeconfig is None)


class Request(NamedTuple):
    """A request to the agent.

    Attributes:
        made: claims that are made together with the pod.
        objects: (kind, name) -> keys of the objects of its namespace in the same files.
        workload: kind and replicas of what makes the pod; None: it is a pod of its own.
    """

    body: dict[str, Any]
    made: frozenset[str] = frozenset()
    objects: Mapping[tuple[str, str], Collection[str]] = MappingProxyType({})
    workload: tuple[str, int] | None = None


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
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
        "-f",
        "--file",
        action="append",
        help="a manifest (YAML or JSON; - reads standard input): pods, workloads, and the "
        "ConfigMaps, Secrets and claims that are applied with them; may be repeated",
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


def requests(parsed: argparse.Namespace) -> list[Request]:
    """The question to the agent. Raises Unreadable."""
    if not parsed.file:
        namespace, name = names(parsed)
        text = parsed.patch if parsed.patch is not None else _read(parsed.patch_file)
        patches = _documents(text, parsed.patch_file or "the patch")
        if len(patches) > 1:
            raise Unreadable("there is more than one document in the patch")
        requested = {"namespace": namespace, "name": name, "patch": patches[0], "type": parsed.type}
        return [Request(requested)]
    from kubeletpy.observe.foresee.start import applied_objects

    documents = [
        item
        for file in parsed.file
        for document in _documents(_read(file), file)
        for item in _items(document)
    ]
    objects = applied_objects(documents, parsed.namespace)
    found = []
    for document in documents:
        for pod, claims in pods_of(document, parsed.namespace):
            workload = _workload(document)
            replicas = {} if workload is None or workload[1] == 1 else {"replicas": workload[1]}
            beside = objects.get(pod["metadata"]["namespace"], {})
            found.append(Request({"pod": pod, **replicas}, claims, beside, workload))
    if not found:
        files = ", ".join(parsed.file)
        raise Unreadable(f"{files}: there is no pod, and nothing that makes pods, in it")
    return found


def _items(document: Any) -> Iterator[dict[str, Any]]:
    """The objects of a document: those of a list, or itself."""
    if not isinstance(document, dict):
        raise Unreadable("a document is no object")
    if not str(document.get("kind")).endswith("List"):
        yield document
        return
    items = document.get("items")
    for item in items if isinstance(items, list) else ():
        yield from _items(item)


def _workload(document: dict[str, Any]) -> tuple[str, int] | None:
    """Kind and replicas of a workload; None for another object.

    A DaemonSet has one pod on each node, a Job as many at once as its parallelism.
    """
    kind = str(document.get("kind"))
    if kind not in _TEMPLATES:
        return None
    spec = document.get("spec")
    if kind == "CronJob" and isinstance(spec, dict):
        job = spec.get("jobTemplate")
        spec = job.get("spec") if isinstance(job, dict) else None
    field = "parallelism" if kind in ("CronJob", "Job") else "replicas"
    count = spec.get(field) if isinstance(spec, dict) and kind != "DaemonSet" else None
    return kind, count if isinstance(count, int) and count >= 0 else 1


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
    objects = list(_items(document))
    if objects != [document]:
        for item in objects:
            yield from pods_of(item, namespace)
        return
    kind = document.get("kind")
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
