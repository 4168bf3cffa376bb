"""The user's side of a test node: kubectl, pods, events."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubeletpy.base.api.types import JSON
from tests.integration.node.parts import Parts
from tests.integration.node.seen import container_status, is_ready, status, waiting
from tools.env.waiting import NotReadyError, wait_until

TIMEOUT = 40.0


class UserSide(Parts):
    """Access through the API."""

    def kubectl(
        self,
        *arguments: str | Path,
        namespace: str = "",
        version: str = "new",
        timeout: float = 60.0,
    ) -> str:
        """Run kubectl as the administrator. Raises CommandError with its output."""
        where = ("--namespace", namespace) if namespace else ()
        kubeconfig = self.api.endpoint.admin_kubeconfig
        return self._kubectls[version].run(kubeconfig, *where, *arguments, timeout=timeout)

    def kubectl_program(self, version: str = "new") -> tuple[Path, dict[str, str]]:
        """kubectl and its environment, for a process that a test watches."""
        tool = self._kubectls[version]
        return tool.program, tool.environment(self.api.endpoint.admin_kubeconfig)

    def apply(self, *objects: JSON, namespace: str, version: str = "new") -> str:
        """`kubectl apply -f` of objects."""
        file = self.directory / f"apply-{os.urandom(4).hex()}.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
        try:
            return self.kubectl("apply", "-f", file, namespace=namespace, version=version)
        finally:
            file.unlink()

    def pod(self, namespace: str, name: str) -> JSON:
        """A pod as it is stored; empty when there is none."""
        return self.api.find("pods", namespace, name) or {}

    def wait_pod(
        self,
        namespace: str,
        name: str,
        check: Callable[[JSON], Any],
        what: str,
        timeout: float = TIMEOUT,
    ) -> JSON:
        """Wait until a stored pod ({} when there is none) passes a check; returns the pod.

        The failure shows the pod's status, its events and the end of the agent's log.
        """

        def passes() -> tuple[JSON] | None:
            pod = self.pod(namespace, name)
            return (pod,) if check(pod) else None

        passed: tuple[JSON] = self.until(
            passes, f"pod {namespace}/{name} {what}", namespace, name, timeout=timeout
        )
        return passed[0]

    def until(
        self,
        check: Callable[[], Any],
        what: str,
        namespace: str = "",
        name: str = "",
        *,
        timeout: float = TIMEOUT,
    ) -> Any:
        """`wait_until` whose error contains the pod's status, its events and the agent's log."""
        try:
            return wait_until(check, what, timeout=timeout, interval=0.03)
        except NotReadyError as error:
            raise NotReadyError(f"{error}\n{self.story(namespace, name)}") from error

    def wait_running(self, namespace: str, name: str, timeout: float = TIMEOUT) -> JSON:
        """Wait until a pod is Ready."""
        return self.wait_pod(namespace, name, is_ready, "Ready", timeout)

    def wait_removed(self, namespace: str, name: str, timeout: float = TIMEOUT) -> None:
        """Wait until the API has no such pod."""
        self.wait_pod(namespace, name, lambda pod: not pod, "gone", timeout)

    def wait_phase(self, namespace: str, name: str, phase: str, timeout: float = TIMEOUT) -> JSON:
        """Wait for a phase."""
        return self.wait_pod(
            namespace, name, lambda pod: status(pod).get("phase") == phase, phase, timeout
        )

    def wait_waiting(self, namespace: str, name: str, reason: str, container: str = "") -> JSON:
        """Wait until a container waits for a reason; returns its status."""

        def waits(pod: JSON) -> bool:
            return waiting(container_status(pod, container)).get("reason") == reason

        return container_status(
            self.wait_pod(namespace, name, waits, f"waiting with {reason}"), container
        )

    def events(self, namespace: str, name: str = "") -> list[str]:
        """Events as "Reason: message", oldest first."""
        found = [
            event
            for event in self.api.all("events", namespace)
            if not name or event["involvedObject"].get("name") == name
        ]
        found.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [f"{event.get('reason')}: {event.get('message')}" for event in found]

    def wait_event(self, namespace: str, name: str, pattern: str, timeout: float = TIMEOUT) -> str:
        """Wait for an event that matches a regular expression from its start."""

        def found() -> str | None:
            return next((e for e in self.events(namespace, name) if re.match(pattern, e)), None)

        event = self.until(found, f"event {pattern}", namespace, name, timeout=timeout)
        assert isinstance(event, str)
        return event

    def story(self, namespace: str, name: str) -> str:
        """A pod's status, its events and the end of the agent's log, for a failure."""
        lines = [json.dumps(status(self.pod(namespace, name)), indent=1)] if name else []
        lines += self.events(namespace, name) if namespace else []
        return "\n".join([*lines, "the end of the agent's log:", self.agent.log_tail(40)])
