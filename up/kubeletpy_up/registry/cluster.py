"""State of the API that all verbs work on: objects, settings, and authorization.

Must never write objects: that is :mod:`kubeletpy_up.registry.writing` and ``removal``.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Collection, Container, Iterable

from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy_up import errors
from kubeletpy_up.auth import credentials, tokens
from kubeletpy_up.auth.authorizer import AdmissionRefusal, Request, authorize, named_in
from kubeletpy_up.kinds import rules as kinds
from kubeletpy_up.requests import Caller
from kubeletpy_up.resources import ResourceInfo, find
from kubeletpy_up.storage.store import Store
from kubeletpy_up.storage.watch import Watchers


class Cluster:
    """The objects, the clock, the settings, and queries of them.

    Args:
        clock: the time of day.
        store: where the objects are.
        strict: refuse a node's request that the Node authorizer or NodeRestriction of a real
            cluster would refuse.
        service_account_volumes: mount the ``kube-api-access`` volume into new pods.
        signing_key: of service account tokens; generated if not given.
        rng: source of uids and generated names; seed it to replay a simulation.
        service_cidr: where clusterIPs come from.
        only_node: the one node that may be registered; empty: any.
        feature_gates: of those that are off by default, the ones that are on.
    """

    def __init__(
        self,
        clock: Clock,
        store: Store,
        *,
        strict: bool = True,
        service_account_volumes: bool = False,
        signing_key: bytes | None = None,
        rng: random.Random | None = None,
        service_cidr: str = "10.96.0.0/16",
        only_node: str = "",
        feature_gates: Collection[str] = (),
    ) -> None:
        self.clock = clock
        self.store = store
        self.strict = strict
        self.service_account_volumes = service_account_volumes
        self.service_cidr = service_cidr
        self.only_node = only_node
        self.feature_gates = frozenset(feature_gates)
        self.signer = tokens.TokenSigner(signing_key or secrets.token_bytes(32))
        self.rng: random.Random = rng or random.SystemRandom()
        self.watchers = Watchers()
        self.static_tokens: Callable[[str], Caller | None] = lambda _: None

    def find(self, resource: str, namespace: str, name: str) -> JSON | None:
        """One stored object by resource key, without authorization."""
        entry = self.store.get(resource, namespace, name)
        return entry.object if entry else None

    def names(self, resource: str, namespace: str | None = None) -> list[str]:
        """The names of a resource's objects; of one namespace or of all (None)."""
        return [name for (_, name), _ in self.store.entries(resource, namespace)]

    def pods_on(self, node_name: str) -> Iterable[JSON]:
        """All pods bound to a node."""
        for _, entry in self.store.entries("pods"):
            if (entry.object.get("spec") or {}).get("nodeName") == node_name:
                yield entry.object

    def volumes_of(self, namespace: str, claims: Container[str]) -> Iterable[JSON]:
        """The PersistentVolumes bound to, or reserved for, a namespace's claims."""
        for _, entry in self.store.entries("persistentvolumes"):
            reference = (entry.object.get("spec") or {}).get("claimRef") or {}
            if reference.get("namespace") == namespace and reference.get("name") in claims:
                yield entry.object

    def resource(self, name: str) -> ResourceInfo:
        """A served resource by plural or key.

        Raises:
            ApiError: 404.
        """
        info = find(name)
        if info is None:
            raise errors.unknown_path()
        return info

    def context(self) -> kinds.Context:
        """Lookups and settings for the rules of kinds."""
        return kinds.Context(
            find=self.find,
            all_of=lambda key: (entry.object for _, entry in self.store.entries(key)),
            now=self.clock.now(),
            suffix=lambda: "".join(self.rng.choice("bcdfghjklmnpqrstvwxz2456789") for _ in "12345"),
            mount_tokens=self.service_account_volumes,
            service_cidr=self.service_cidr,
        )

    def check(self, caller: Caller, info: ResourceInfo, request: Request) -> None:
        """Raise ApiError 403 if the caller may not."""
        refused = authorize(caller, request, self, strict=self.strict)
        if refused is None:
            return
        name = request.name or named_in(request.body)
        if isinstance(refused, AdmissionRefusal):
            raise errors.forbidden(info.plural, name, refused, info.group)
        resource = info.plural + (f"/{request.subresource}" if request.subresource else "")
        namespace = request.namespace or (name if info.plural == "namespaces" else "")
        where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
        why = (
            f'User "{caller.user}" cannot {request.verb} resource "{resource}" in API group '
            f'"{info.group}"{where}{f": {refused}" if refused else ""}'
        )
        raise errors.forbidden(info.plural, request.name, why, info.group)

    def authenticate_token(
        self, token: str, audiences: tuple[str, ...] = ()
    ) -> tuple[Caller, JSON] | None:
        """The caller with a bearer token, and a service account token's claims; None for nobody."""
        caller = self.static_tokens(token)
        if caller is not None:
            return caller, {}
        now = self.clock.now()
        if credentials.looks_like_one(token):
            joining = credentials.caller_of_token(token, self.find, now)
            return None if joining is None else (joining, {})
        return tokens.account_caller(self.store, self.signer, token, now, audiences)

    def stored(self, info: ResourceInfo, namespace: str, name: str) -> JSON:
        """A stored object. Raises ApiError 404."""
        entry = self.store.get(info.storage_key, namespace, name)
        if entry is None:
            raise errors.not_found(info.plural, name, info.group)
        return entry.object
