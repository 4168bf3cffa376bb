"""Creates that store no object: bindings, evictions, tokens and reviews.

The caller is already authorized.
"""

from __future__ import annotations

import uuid

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component, replace
from kubeletpy_up import errors
from kubeletpy_up.auth import reviews, tokens
from kubeletpy_up.auth.authorizer import Request, authorize
from kubeletpy_up.kinds import meta, pods
from kubeletpy_up.registry.cluster import Cluster
from kubeletpy_up.registry.removal import Remover
from kubeletpy_up.requests import Caller, Target, WriteOptions, read_delete_options
from kubeletpy_up.resources import ResourceInfo
from kubeletpy_up.schema import decode as schema

_DONE: JSON = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
_OLD_EVICTION = "policy/v1beta1"  # what kubectl before 1.22 sends; the same fields


class Subresources(Component):
    """Handles such creates for the registry."""

    cluster: Cluster
    remover: Remover

    def create(self, target: Target, obj: JSON, options: WriteOptions) -> JSON:
        """Act on ``subresource`` of an object, or on a resource that is never stored.

        Raises:
            ApiError: 400, 404, 409, 422.
        """
        info, namespace, name = target.info, target.namespace, target.name
        subresource = target.subresource
        below = info.subresource(subresource) if subresource else None
        kind = below.kind if below else info.kind
        group = (below.group or info.group) if below else info.group
        version = (below.version or info.version) if below else info.version
        if kind == "Eviction" and isinstance(obj, dict) and obj.get("apiVersion") == _OLD_EVICTION:
            obj = {**obj, "apiVersion": "policy/v1"}
        decoded, warnings = schema.decode_kind(group, version, kind, obj, options.field_validation)
        options.warnings.extend(warnings)
        if kind == "Binding":
            name = name or str((decoded.get("metadata") or {}).get("name") or "")
            return self._bind(decoded, namespace, name, options)
        if kind == "Eviction":
            return self._evict(info, decoded, namespace, name, options)
        if kind == "TokenRequest":
            account = self.cluster.stored(info, namespace, name)
            identifier = str(uuid.UUID(int=self.cluster.rng.getrandbits(128), version=4))
            return tokens.create_token(
                self.cluster.store,
                self.cluster.signer,
                account,
                decoded,
                now=self.cluster.clock.now(),
                identifier=identifier,
            )
        if kind == "TokenReview":
            return reviews.token_review(decoded, self.cluster.authenticate_token, tokens.ISSUER)
        if kind == "SelfSubjectReview":
            return reviews.self_subject_review(decoded, target.caller, self.cluster.clock.now())
        if kind.endswith("SubjectAccessReview"):
            if info.namespaced:
                metadata = decoded.get("metadata") or {}
                decoded = {**decoded, "metadata": {**metadata, "namespace": namespace}}
            return reviews.access_review(decoded, target.caller, self._authorize)
        raise errors.method_not_allowed(info.plural, "create", info.group)

    def _authorize(self, caller: Caller, request: Request) -> str | None:
        return authorize(caller, request, self.cluster, strict=self.cluster.strict)

    def _bind(self, binding: JSON, namespace: str, name: str, options: WriteOptions) -> JSON:
        cluster = self.cluster
        pod = cluster.stored(cluster.resource("pods"), namespace, name)
        uid = (binding.get("metadata") or {}).get("uid")
        if uid and uid != pod["metadata"]["uid"]:
            why = (
                f"StorageError: invalid object, Code: 4, Key: /registry/pods/{namespace}/{name}, "
                f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in "
                f"precondition: {uid}, UID in object meta: {pod['metadata']['uid']}"
            )
            raise errors.conflict("pods", name, why)
        bound = pods.bind(pod, binding, cluster.clock.now())
        if not options.dry_run:
            # The binding is not a change of the spec by a user: the generation stays.
            cluster.store.put("pods", namespace, name, bound)
        return {**_DONE, "code": 201}

    def _evict(
        self, info: ResourceInfo, eviction: JSON, namespace: str, name: str, options: WriteOptions
    ) -> JSON:
        if (eviction.get("metadata") or {}).get("name") not in ("", None, name):
            raise errors.bad_request("name in URL does not match name in Eviction object")
        supplied = eviction.get("deleteOptions") or {}
        if options.dry_run:
            supplied = {**supplied, "dryRun": ["All"]}
        desired = read_delete_options(supplied, {})
        cluster = self.cluster
        pod = cluster.stored(info, namespace, name)
        disrupted = pods.disrupted(pod, cluster.clock.now())
        if not options.dry_run and disrupted is not pod:
            meta.check_delete_preconditions(info, name, pod, desired.uid, desired.resource_version)
            cluster.store.put("pods", namespace, name, disrupted)
            desired = replace(desired, resource_version="")
        self.remover.delete(info, name, namespace, desired)
        return {**_DONE, "code": 201}
