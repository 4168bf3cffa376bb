"""All credential providers of a node: which are called for an image, and in which order.

A provider that fails costs a line in the log, never the pull. Must never log an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kubeletpy.base.tasks import run_together
from kubeletpy.images.credentials import Config, Keyring, Source
from kubeletpy.images.providers.protocol import ProviderError
from kubeletpy.images.providers.provider import Provider
from kubeletpy.images.registry_pattern import Repository
from kubeletpy.pods.pod import Pod

logger = logging.getLogger(__name__)


class Plugins:
    """The providers, in order."""

    def __init__(self, providers: Sequence[Provider]) -> None:
        self._providers = tuple(providers)

    async def keyring(self, repository: str, pod: Pod) -> Keyring:
        """The answers of the providers responsible for a repository, called concurrently."""
        parsed = Repository.parse(repository)
        responsible = [provider for provider in self._providers if provider.fits(parsed)]
        answers = await run_together(
            *(_provider_auths(each, repository, pod) for each in responsible)
        )
        return Keyring(answer for answer in answers if answer is not None)

    async def close(self) -> None:
        """Stop the running programs."""
        for provider in self._providers:
            await provider.close()


async def _provider_auths(
    provider: Provider, repository: str, pod: Pod
) -> tuple[Config, Source] | None:
    try:
        auths, source = await provider.auths(repository, pod)
    except ProviderError as error:
        logger.warning(
            "no credentials from provider",
            extra={
                "provider": provider.name,
                "image": repository,
                "pod": pod.key,
                "error": str(error),
            },
        )
        return None
    return {"auths": auths}, source
