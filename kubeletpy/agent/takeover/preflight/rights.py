"""The rights in the API that the agent needs, and which of them its identity lacks.

Each is requested as a SelfSubjectAccessReview, which stores nothing. Rights that depend on a pod,
such as reading its secrets, are granted with the pod and are not requested.

Source: docs/reference/api-server.md, ae.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeletpy.agent.takeover.preflight.findings import Area, Finding, Severity
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy.base.tasks import run_together
from kubeletpy.config import KubeletSettings
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import KubeApi, Resource
from kubeletpy.node.lease import NAMESPACE

SELFSUBJECTACCESSREVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", False, "SelfSubjectAccessReview"
)


class Right(Struct, frozen=True):
    """One right.

    Attributes:
        resource: ``pods``, or with a subresource ``pods/status``.
        name: of the object; empty: all.
        of_node: only objects whose spec.nodeName is this node.
        purpose: what does not work without it.
    """

    verb: str
    resource: str
    purpose: str
    group: str = ""
    namespace: str = ""
    name: str = ""
    of_node: bool = False

    @property
    def text(self) -> str:
        """``list pods``, ``update leases.coordination.k8s.io kube-node-lease/node-1``."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        name = f" {self.namespace}/{self.name}".rstrip("/") if self.namespace else f" {self.name}"
        return f"{self.verb} {resource}{name}".rstrip()


def needed_rights(settings: KubeletSettings, node: str) -> Iterator[Right]:
    """The rights that an agent with these settings needs."""
    for verb in ("list", "watch"):
        yield Right(verb, "pods", "no pod of the API is run", of_node=True)
    yield Right("patch", "pods/status", "statuses of pods are not reported")
    yield Right("delete", "pods", "pods that have ended stay")
    yield Right("get", "nodes", "the node is not registered", name=node)
    yield Right("patch", "nodes/status", "the node becomes NotReady", name=node)
    if settings.register_node:
        yield Right("create", "nodes", "the node is not registered")
    lease = "coordination.k8s.io"
    for verb in ("get", "update"):
        yield Right(verb, "leases", "the node becomes NotReady", lease, NAMESPACE, node)
    for verb in ("create", "patch"):
        yield Right(verb, "events", "no events are written", namespace="default")
    for verb in ("list", "watch"):
        yield Right(verb, "services", "containers get no variables of services")
        yield Right(verb, "runtimeclasses", "pods with a RuntimeClass wait", "node.k8s.io")
        yield Right(verb, "csidrivers", "volumes of CSI drivers are not mounted", "storage.k8s.io")
    yield Right("get", "csinodes", "CSI drivers are not shown", "storage.k8s.io", name=node)
    if settings.authentication.webhook.enabled:
        text = "clients with tokens are refused"
        yield Right("create", "tokenreviews", text, "authentication.k8s.io")
    if settings.authorization.mode == "Webhook":
        text = "clients of the node's API are refused"
        yield Right("create", "subjectaccessreviews", text, "authorization.k8s.io")
    if settings.rotate_certificates or settings.server_tls_bootstrap:
        text = "certificates are not renewed"
        group = "certificates.k8s.io"
        yield Right("create", "certificatesigningrequests", text, group)


async def missing_rights(settings: KubeletSettings, node: str, kube_api: KubeApi) -> list[Finding]:
    """A finding for each right that the identity lacks, or that could not be requested."""
    rights = list(needed_rights(settings, node))
    answers = await run_together(*(_review_right(each, node, kube_api) for each in rights))
    return [each for each in answers if each is not None]


async def _review_right(right: Right, node: str, kube_api: KubeApi) -> Finding | None:
    try:
        answer = await kube_api.create(SELFSUBJECTACCESSREVIEWS, review(right, node))
    except ApiError as error:
        what = f"the API server does not report whether it is allowed: {error}"
        return Finding(Area.RIGHTS, Severity.UNCLEAR, right.text, what)
    status = answer.get("status") or {}
    if status.get("allowed"):
        return None
    reason = status.get("reason") or "not allowed"
    return Finding(Area.RIGHTS, Severity.BLOCKS, right.text, str(reason), right.purpose)


def review(right: Right, node: str) -> JSON:
    """The SelfSubjectAccessReview for a right."""
    resource, _, subresource = right.resource.partition("/")
    attributes: JSON = {"verb": right.verb, "resource": resource}
    for key, value in (
        ("group", right.group),
        ("subresource", subresource),
        ("namespace", right.namespace),
        ("name", right.name),
    ):
        if value:
            attributes[key] = value
    if right.of_node:
        wanted = {"key": "spec.nodeName", "operator": "In", "values": [node]}
        attributes["fieldSelector"] = {"requirements": [wanted]}
    return {
        "apiVersion": SELFSUBJECTACCESSREVIEWS.api_version,
        "kind": SELFSUBJECTACCESSREVIEWS.kind,
        "spec": {"resourceAttributes": attributes},
    }
