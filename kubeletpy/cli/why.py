"""``kubectl why``: why a pod of any node is in its state, with the caller's own permissions.

A kubectl plugin. It queries the pod's node through the API server's node proxy. A node may not
explain: it runs the kubelet, it does not answer, or the caller lacks permission. Then it reports
the contents of status and events.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice
from typing import Any
from urllib.parse import quote

from kubeletpy.base.structs import Component
from kubeletpy.cli.endings import end_in_order
from kubeletpy.observe.explain import render, unplaced
from kubeletpy.observe.explain.unplaced import wants_host_ports
from kubeletpy.pods.pod import CONFIG_MIRROR
from kubeletpy.pods.pod_manager import MAX_NAMESAKES, static_name

TIMEOUT_S = 30.0
_PASSED_ON = ("kubeconfig", "context", "cluster", "user", "as")
_LOG_LINE = re.compile(r"^[EWI]\d{4} \d\d:.*\n?", re.MULTILINE)
"""A line of kubectl's log: five of them precede the error of a server that does not answer."""


class KubectlFailed(Exception):
    """kubectl failed; the text is what it printed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code: 1 when there is no such pod."""
    return end_in_order(lambda: _why(arguments))


def _why(arguments: Sequence[str] | None) -> int:
    parsed = parser().parse_args(arguments)
    program = shutil.which("kubectl")
    if program is None:
        print("kubectl why: there is no kubectl on the PATH", file=sys.stderr)
        return 1
    kubectl = Kubectl(program, parsed)
    try:
        pod = find_pod(kubectl)
    except (KubectlFailed, ValueError) as error:
        print(f"kubectl why: {error}", file=sys.stderr)
        return 1
    found, node_states = explained(kubectl, pod)
    if parsed.output == "json":
        print(json.dumps(found if found is not None else {"error": node_states}, indent=2))
        return int(found is None)
    if found is not None:
        sys.stdout.write(render.pod(found, colors=sys.stdout.isatty()))
        return 0
    about = events(kubectl, pod)
    text = unplaced.explain(
        pod, about, node_states, now=time.time(), others=other_pods(kubectl, pod)
    )
    sys.stdout.write(text)
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="kubectl why",
        description="Show why a pod is in its state: what its node has decided, and what it waits "
        "for. Queries the node through the API server; requires permission to get nodes/proxy.",
    )
    made.add_argument("pod", metavar="POD", help="NAME, NAMESPACE/NAME or UID")
    made.add_argument("-n", "--namespace")
    made.add_argument("-o", "--output", choices=["text", "json"], default="text")
    for name in _PASSED_ON:
        made.add_argument(f"--{name}", dest=f"kubectl_{name}", help="as for kubectl")
    return made


class Kubectl(Component):
    """Runs kubectl for one pod, as the caller."""

    program: str
    parsed: argparse.Namespace

    def __post_init__(self) -> None:
        first, slash, last = self.parsed.pod.removeprefix("pod/").partition("/")
        namespace, self.pod = (first, last) if slash else (self.parsed.namespace, first)
        self._command = [self.program]
        for name in _PASSED_ON:
            if (value := getattr(self.parsed, f"kubectl_{name}")) is not None:
                self._command.append(f"--{name}={value}")
        if namespace:
            self._command.append(f"--namespace={namespace}")

    def run(self, verb: str, *arguments: str) -> str:
        """Run kubectl and return its output. Raises KubectlFailed."""
        command = [*self._command, verb, *arguments]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as failure:
            raise KubectlFailed(str(failure)) from failure
        if done.returncode:
            error = _LOG_LINE.sub("", done.stderr).strip() or done.stderr.strip()
            raise KubectlFailed(error or f"kubectl ended with {done.returncode}")
        return done.stdout


def find_pod(kubectl: Kubectl) -> Any:
    """The pod by its name, its uid, or the name in the manifest of a static pod.

    Raises KubectlFailed, ValueError.
    """
    try:
        return json.loads(kubectl.run("get", "pod", kubectl.pod, "--output=json"))
    except KubectlFailed as error:
        if "(NotFound)" not in str(error):
            raise
        found = [pod for pod in _pods(kubectl) if _is_named(pod, kubectl.pod)]
        if len(found) == 1:
            return found[0]
        by_name = f"--field-selector=metadata.name={kubectl.pod}"
        others = found or _pods(kubectl, "--all-namespaces", by_name)
        keys = (f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in others)
        if use := " or ".join(islice(keys, MAX_NAMESAKES)):
            raise KubectlFailed(f"{error}; use {use}") from error
        raise


def other_pods(kubectl: Kubectl, pod: Any) -> list[Any]:
    """The pods of all nodes, if they matter for why no node has this one."""
    if (pod.get("spec") or {}).get("nodeName") or not wants_host_ports(pod):
        return []
    return _pods(kubectl, "--all-namespaces", "--field-selector=spec.nodeName!=")


def _pods(kubectl: Kubectl, *arguments: str) -> list[Any]:
    try:
        return list(json.loads(kubectl.run("get", "pods", *arguments, "--output=json"))["items"])
    except (KubectlFailed, ValueError, LookupError):
        return []


def _is_named(pod: Any, name: str) -> bool:
    metadata, node = pod["metadata"], (pod.get("spec") or {}).get("nodeName") or ""
    static = CONFIG_MIRROR in (metadata.get("annotations") or {})
    return metadata["uid"] == name or (static and metadata["name"] == static_name(name, node))


def explained(kubectl: Kubectl, pod: Any) -> tuple[dict[str, Any] | None, str]:
    """The explanation from the pod's node; or None, and the reason."""
    metadata, node = pod.get("metadata") or {}, (pod.get("spec") or {}).get("nodeName")
    if not node:
        return None, ""
    parts = (node, "proxy", "explain", metadata.get("namespace"), metadata.get("name"))
    path = "/".join(quote(str(part), safe="") for part in parts)
    try:
        found = json.loads(kubectl.run("get", f"--raw=/api/v1/nodes/{path}"))
    except ValueError:
        return None, f"node {node} answers with something else than an explanation"
    except KubectlFailed as error:
        return None, _why_not(node, str(error))
    if not isinstance(found, dict) or "verdict" not in found:
        return None, f"node {node} answers with something else than an explanation"
    return found, ""


def _why_not(node: str, stated: str) -> str:
    if f'nodes "{node}" not found' in stated:
        return (
            f"the API has no Node object {node}: it was deleted, or its machine has never "
            "registered; restart the agent on that machine, or create the Node object"
        )
    if "(NotFound)" in stated or "404" in stated:
        return f"node {node} explains nothing about it: it runs the kubelet, or no longer this pod"
    if "(Forbidden)" in stated:
        return f"you may not query node {node}: that requires permission to get nodes/proxy"
    return f"node {node} does not answer: {stated}"


def events(kubectl: Kubectl, pod: Any) -> list[Any]:
    """The events of a pod; none where they can't be had."""
    uid = (pod.get("metadata") or {}).get("uid")
    selector = f"--field-selector=involvedObject.uid={uid}"
    try:
        found = json.loads(kubectl.run("get", "events", selector, "--output=json"))
    except (KubectlFailed, ValueError):
        return []
    return list(found.get("items") or ())


if __name__ == "__main__":
    sys.exit(main())
