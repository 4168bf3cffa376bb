"""Credentials that a pod may present: its pull secrets, the node's files, credential providers.

In this order (docs/reference/behaviour.md, g3); looked up once per container start, and only when a
pull or a pull record needs it. Must never log or keep what it finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kubeletpy.images.credentials import Credential, Keyring, SecretSource, find_credentials
from kubeletpy.images.node_credentials import NodeCredentials
from kubeletpy.images.pull_secrets import PullSecretLike
from kubeletpy.images.reference import parse_reference
from kubeletpy.pods.pod import Pod


class CredentialProviders(Protocol):
    """Programs that provide credentials: :class:`kubeletpy.images.providers.plugins.Plugins`."""

    async def keyring(self, repository: str, pod: Pod) -> Keyring:
        """Their credentials for images of a repository; a failing provider contributes none."""
        ...


class CredentialSources:
    """Where credentials come from on this node."""

    def __init__(self, node: NodeCredentials, providers: CredentialProviders | None) -> None:
        self._node = node
        self._providers = providers

    async def find(
        self, pod: Pod, image: str, secrets: Sequence[PullSecretLike]
    ) -> Sequence[Credential]:
        """All matches, in the order in which they are tried."""
        repository = parse_reference(image).repository
        own = Keyring(
            (secret.docker_config, SecretSource(secret.uid, secret.namespace, secret.name))
            for secret in secrets
        )
        keyrings = [own, await self._node.keyring()]
        if self._providers is not None:
            keyrings.append(await self._providers.keyring(repository, pod))
        return find_credentials(keyrings, repository)


class PodCredentials:
    """Credentials of one pod for one image, looked up at most once."""

    def __init__(
        self,
        sources: CredentialSources,
        pod: Pod,
        image: str,
        secrets: Sequence[PullSecretLike],
    ) -> None:
        self._sources = sources
        self._wanted = (pod, image, secrets)
        self._found: Sequence[Credential] | None = None

    async def get(self) -> Sequence[Credential]:
        """All matches, best first; a login may appear several times, once per source."""
        if self._found is None:
            self._found = await self._sources.find(*self._wanted)
        return self._found
