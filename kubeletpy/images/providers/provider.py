"""Credential providers of a node: which ones are called for an image, in which order, how rarely.

Answers are cached while valid, and equal requests share one call. A request for another image
waits for a running call whose answer may cover it. A provider that fails costs a line in the log,
never the pull. Must never log an answer, nor keep or show a token.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from kubeletpy.base.host.program import Program, ProgramFailed, RunProgram, run_program
from kubeletpy.base.structs import Component, Hidden, HidesFields, Struct, replace
from kubeletpy.base.tasks import cancel_tasks, run_together
from kubeletpy.config import ConfigError, KubeletSettings, NodeFlags, Problem
from kubeletpy.config.credential_providers import (
    TOKENS_GATE,
    CredentialProvider,
    TokenAttributes,
    load_credential_providers,
)
from kubeletpy.config.files import (
    BIN_DIR_FLAG,
    FLAG,
    check_programs,
    read_credential_provider_files,
)
from kubeletpy.images.credentials import AccountSource, Config, Keyring, Source
from kubeletpy.images.providers import protocol as providers_protocol
from kubeletpy.images.reference import RegistryPattern, Repository
from kubeletpy.metrics.resources import CredentialProviderMetrics
from kubeletpy.pods.pod import Pod

logger = logging.getLogger(__name__)

# The service account of a pod, as a provider sees it (KEP-4412, tokenAttributes)


class AccountError(Exception):
    """An account or its token is unavailable; the text contains the reason and may be logged."""


class ServiceAccounts(Protocol):
    """Service accounts of the cluster."""

    async def read_account(self, namespace: str, name: str) -> tuple[str, Mapping[str, str]]:
        """The uid and annotations of an account. Raises AccountError."""

    async def token(self, pod: Pod, account: AccountSource, audience: str) -> str:
        """A token of the account, bound to the pod. Raises AccountError."""


class AccountFacts(HidesFields, Struct, frozen=True):
    """The account of one pod, as one provider sees it."""

    source: AccountSource
    annotations: Mapping[str, str]
    token: Hidden[str] = ""
    """Empty until it is needed."""

    def scope(self, cache_type: str) -> Hashable:
        """The cache key for answers for this account."""
        return (self.source, tuple(sorted(self.annotations.items())), self.proof(cache_type))

    def proof(self, cache_type: str = "Token") -> str:
        """The token's hash, if answers are cached by token."""
        return hashlib.sha256(self.token.encode()).hexdigest() if cache_type == "Token" else ""


def chosen_annotations(
    attributes: TokenAttributes, annotations: Mapping[str, str]
) -> dict[str, str] | None:
    """Return the annotations that a provider requests, or None when a required one is missing.

    An account opts its pods into this provider by its annotations. Without them the provider is
    not called.
    """
    required = attributes.required_service_account_annotation_keys
    if any(key not in annotations for key in required):
        return None
    desired = (*required, *attributes.optional_service_account_annotation_keys)
    return {key: annotations[key] for key in desired if key in annotations}


# One provider

MAX_CALLS = 10
"""Concurrent calls of one provider."""
_GROUPS: Mapping[providers_protocol.CacheKeyType, Callable[[str], str]] = {
    providers_protocol.CacheKeyType.IMAGE: lambda repository: repository,
    providers_protocol.CacheKeyType.REGISTRY: providers_protocol.registry_of,
    providers_protocol.CacheKeyType.GLOBAL: lambda repository: "",
}
"""Groups questions that one answer may settle, going by the last answer's cache key type."""


class _Flight(Struct, frozen=True):
    """A running call."""

    task: asyncio.Task[providers_protocol.Auths]
    group: Hashable
    """Calls in one group may answer each other's questions."""


class Provider(Component):
    """Requests credentials from one program."""

    settings: CredentialProvider
    program: Program
    run: RunProgram
    accounts: ServiceAccounts
    metrics: CredentialProviderMetrics

    def __post_init__(self) -> None:
        self.name = self.settings.name
        self._patterns = [
            pattern
            for text in self.settings.match_images
            if (pattern := RegistryPattern.parse(text))
        ]
        self._cache = providers_protocol.ResponseCache()
        self._flights: dict[Hashable, _Flight] = {}
        self._slots = asyncio.Semaphore(MAX_CALLS)
        self._last_key_type = providers_protocol.CacheKeyType.IMAGE

    def fits(self, repository: Repository) -> bool:
        """Whether it is responsible for images of a repository."""
        return any(pattern.fits(repository) for pattern in self._patterns)

    async def auths(
        self, repository: str, pod: Pod
    ) -> tuple[providers_protocol.Auths, AccountSource | None]:
        """Its credentials, and the service account they were issued to.

        Raises:
            ProviderError: it could not be called, or gave no usable answer.
        """
        attributes = self.settings.token_attributes
        if attributes is None:
            return await self._answer(repository, pod, None), None
        name = str(pod.spec.get("serviceAccountName") or "")
        if not name:
            if attributes.require_service_account:
                return {}, None
            return await self._answer(repository, pod, None), None
        try:
            uid, all_annotations = await self.accounts.read_account(pod.namespace, name)
            annotations = chosen_annotations(attributes, all_annotations)
            if annotations is None:
                return {}, None
            account = AccountFacts(AccountSource(uid, pod.namespace, name), annotations)
            if attributes.cache_type == "Token":
                account = await self._with_token(account, attributes, pod)
            return await self._answer(repository, pod, account), account.source
        except AccountError as error:
            raise providers_protocol.ProviderError(
                f"service account {pod.namespace}/{name}: {error}"
            ) from error

    async def close(self) -> None:
        """Stop the running calls."""
        await cancel_tasks(flight.task for flight in self._flights.values())

    async def _with_token(
        self, account: AccountFacts, attributes: TokenAttributes, pod: Pod
    ) -> AccountFacts:
        audience = attributes.service_account_token_audience
        token = await self.accounts.token(pod, account.source, audience)
        return replace(account, token=token)

    async def _answer(
        self, repository: str, pod: Pod, account: AccountFacts | None
    ) -> providers_protocol.Auths:
        attributes = self.settings.token_attributes
        scope: Hashable = None
        if account is not None and attributes is not None:
            scope = account.scope(attributes.cache_type)
        if (kept := self._cached_auths(repository, scope)) is not None:
            return kept
        if account is not None and attributes is not None and not account.token:
            account = await self._with_token(account, attributes, pod)
        exact = (repository, scope, account.proof() if account is not None else "")
        group = (_GROUPS[self._last_key_type](repository), scope)
        running = next((f for f in self._flights.values() if f.group == group), None)
        if running is not None and exact not in self._flights:
            await asyncio.wait([running.task])
            if (kept := self._cached_auths(repository, scope)) is not None:
                return kept
        flight = self._flights.get(exact)
        if flight is None:
            task = asyncio.get_running_loop().create_task(self._call(repository, scope, account))
            flight = self._flights[exact] = _Flight(task, group)
            task.add_done_callback(partial(self._landed, exact))
        return await asyncio.shield(flight.task)

    def _cached_auths(self, repository: str, scope: Hashable) -> providers_protocol.Auths | None:
        return self._cache.get(repository, scope, asyncio.get_running_loop().time())

    def _landed(self, exact: Hashable, task: asyncio.Task[providers_protocol.Auths]) -> None:
        self._flights.pop(exact, None)
        if not task.cancelled():
            task.exception()  # raised in those still waiting

    async def _call(
        self, repository: str, scope: Hashable, account: AccountFacts | None
    ) -> providers_protocol.Auths:
        token = account.token if account is not None else ""
        request = providers_protocol.write_request(
            self.settings.api_version,
            repository,
            token,
            account.annotations if account is not None else None,
        )
        loop = asyncio.get_running_loop()
        async with self._slots:
            began = loop.time()
            failed = True
            try:
                output = await self.run(self.program, request, hidden=(token,))
                failed = False
            except ProgramFailed as error:
                raise providers_protocol.ProviderError(str(error)) from error
            finally:
                self.metrics.provider_called(self.name, loop.time() - began, failed=failed)
        response = providers_protocol.read_response(output, self.settings.api_version)
        self._check_echo(response, token)
        self._last_key_type = response.cache_key_type
        self._cache.store(
            response,
            repository,
            scope,
            now=loop.time(),
            default_seconds=self.settings.default_cache_duration,
        )
        return response.auths

    def _check_echo(self, response: providers_protocol.ProviderResponse, token: str) -> None:
        """A token lives no longer than its pod: cached by account, it would be given to other pods.

        Raises:
            ProviderError: the answer is the token, and answers are cached by account.
        """
        attributes = self.settings.token_attributes
        if not token or attributes is None or attributes.cache_type == "Token":
            return
        if any(login.get("password") == token for login in response.auths.values()):
            raise providers_protocol.ProviderError(
                "the response holds the service account token itself as the password: that needs "
                "tokenAttributes.cacheType: Token"
            )


# All providers


class Plugins(Component):
    """The providers of a node, in the order of their configuration."""

    providers: Sequence[Provider]

    async def keyring(self, repository: str, pod: Pod) -> Keyring:
        """Return the answers of the providers responsible for a repository, called concurrently."""
        parsed = Repository.parse(repository)
        responsible = [provider for provider in self.providers if provider.fits(parsed)]
        answers = await run_together(
            *(_provider_auths(each, repository, pod) for each in responsible)
        )
        return Keyring(answer for answer in answers if answer is not None)

    async def close(self) -> None:
        """Stop the running programs."""
        for provider in self.providers:
            await provider.close()


async def _provider_auths(
    provider: Provider, repository: str, pod: Pod
) -> tuple[Config, Source] | None:
    try:
        auths, source = await provider.auths(repository, pod)
    except providers_protocol.ProviderError as error:
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


def providers_from_flags(
    settings: KubeletSettings,
    flags: NodeFlags,
    accounts: ServiceAccounts,
    metrics: CredentialProviderMetrics,
) -> Plugins:
    """Build the providers that the flags name, at least one; runs none of their programs.

    Raises:
        ConfigError: one flag without the other, a bad configuration, or a missing program.
    """
    path, bin_dir = flags.image_credential_provider_config, flags.image_credential_provider_bin_dir
    for flag, value, other in ((FLAG, path, BIN_DIR_FLAG), (BIN_DIR_FLAG, bin_dir, FLAG)):
        if not value:
            raise ConfigError([Problem(flag, "", f"is needed with {other}")])
    config = load_credential_providers(
        read_credential_provider_files(path), token_gate=settings.feature_gates.enabled(TOKENS_GATE)
    )
    check_programs(bin_dir, tuple(provider.name for provider in config.providers))
    metrics.configured(config.config_hash)
    directory = Path(bin_dir).resolve()
    return Plugins(
        [
            Provider(
                provider,
                Program(
                    str(directory / provider.name),
                    provider.args,
                    {variable.name: variable.value for variable in provider.env},
                ),
                run_program,
                accounts,
                metrics,
            )
            for provider in config.providers
        ]
    )
