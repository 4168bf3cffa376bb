"""One credential provider: which images it is called for, and how rarely.

Answers are cached while valid, and equal requests share one call. A request for another image
waits for a running call whose answer may cover it. Must never log an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from functools import partial

from kubeletpy.base.host.program import Program, ProgramFailed, RunProgram
from kubeletpy.base.structs import Struct, replace
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.config.credential_providers import CredentialProvider, TokenAttributes
from kubeletpy.images.credentials import AccountSource
from kubeletpy.images.metrics import ProviderMetrics
from kubeletpy.images.providers.accounts import (
    AccountError,
    AccountFacts,
    ServiceAccounts,
    chosen_annotations,
)
from kubeletpy.images.providers.cache import Auths, ResponseCache, registry_of
from kubeletpy.images.providers.protocol import (
    CacheKeyType,
    ProviderError,
    ProviderResponse,
    read_response,
    write_request,
)
from kubeletpy.images.registry_pattern import RegistryPattern, Repository
from kubeletpy.pods.pod import Pod

MAX_CALLS = 10
"""Concurrent calls of one provider."""
_GROUPS: Mapping[CacheKeyType, Callable[[str], str]] = {
    CacheKeyType.IMAGE: lambda repository: repository,
    CacheKeyType.REGISTRY: registry_of,
    CacheKeyType.GLOBAL: lambda repository: "",
}
"""Groups questions that one answer may settle, going by the last answer's cache key type."""


class _Flight(Struct, frozen=True):
    """A running call."""

    task: asyncio.Task[Auths]
    group: Hashable
    """Calls in one group may answer each other's questions."""


class Provider:
    """Requests credentials from one program."""

    def __init__(
        self,
        settings: CredentialProvider,
        program: Program,
        run: RunProgram,
        accounts: ServiceAccounts,
        metrics: ProviderMetrics,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._program = program
        self._run = run
        self._accounts = accounts
        self._metrics = metrics
        self._patterns = [
            pattern for text in settings.match_images if (pattern := RegistryPattern.parse(text))
        ]
        self._cache = ResponseCache()
        self._flights: dict[Hashable, _Flight] = {}
        self._places = asyncio.Semaphore(MAX_CALLS)
        self._last_key_type = CacheKeyType.IMAGE

    def fits(self, repository: Repository) -> bool:
        """Whether it is responsible for images of a repository."""
        return any(pattern.fits(repository) for pattern in self._patterns)

    async def auths(self, repository: str, pod: Pod) -> tuple[Auths, AccountSource | None]:
        """Its credentials, and the service account they were issued to.

        Raises:
            ProviderError: it could not be called, or gave no usable answer.
        """
        attributes = self._settings.token_attributes
        if attributes is None:
            return await self._answer(repository, pod, None), None
        name = str(pod.spec.get("serviceAccountName") or "")
        if not name:
            if attributes.require_service_account:
                return {}, None
            return await self._answer(repository, pod, None), None
        try:
            uid, all_annotations = await self._accounts.read_account(pod.namespace, name)
            annotations = chosen_annotations(attributes, all_annotations)
            if annotations is None:
                return {}, None
            account = AccountFacts(AccountSource(uid, pod.namespace, name), annotations)
            if attributes.cache_type == "Token":
                account = await self._with_token(account, attributes, pod)
            return await self._answer(repository, pod, account), account.source
        except AccountError as error:
            raise ProviderError(f"service account {pod.namespace}/{name}: {error}") from error

    async def close(self) -> None:
        """Stop the running calls."""
        await cancel_tasks(flight.task for flight in self._flights.values())

    async def _with_token(
        self, account: AccountFacts, attributes: TokenAttributes, pod: Pod
    ) -> AccountFacts:
        audience = attributes.service_account_token_audience
        token = await self._accounts.token(pod, account.source, audience)
        return replace(account, token=token)

    async def _answer(self, repository: str, pod: Pod, account: AccountFacts | None) -> Auths:
        attributes = self._settings.token_attributes
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

    def _cached_auths(self, repository: str, scope: Hashable) -> Auths | None:
        return self._cache.get(repository, scope, asyncio.get_running_loop().time())

    def _landed(self, exact: Hashable, task: asyncio.Task[Auths]) -> None:
        self._flights.pop(exact, None)
        if not task.cancelled():
            task.exception()  # raised in those still waiting

    async def _call(self, repository: str, scope: Hashable, account: AccountFacts | None) -> Auths:
        token = account.token if account is not None else ""
        request = write_request(
            self._settings.api_version,
            repository,
            token,
            account.annotations if account is not None else None,
        )
        loop = asyncio.get_running_loop()
        async with self._places:
            began = loop.time()
            failed = True
            try:
                output = await self._run(self._program, request, hidden=(token,))
                failed = False
            except ProgramFailed as error:
                raise ProviderError(str(error)) from error
            finally:
                self._metrics.provider_called(self.name, loop.time() - began, failed=failed)
        response = read_response(output, self._settings.api_version)
        self._check_echo(response, token)
        self._last_key_type = response.cache_key_type
        self._cache.store(
            response,
            repository,
            scope,
            now=loop.time(),
            default_seconds=self._settings.default_cache_duration,
        )
        return response.auths

    def _check_echo(self, response: ProviderResponse, token: str) -> None:
        """A token lives no longer than its pod: cached by account, it would be given to other pods.

        Raises:
            ProviderError: the answer is the token, and answers are cached by account.
        """
        attributes = self._settings.token_attributes
        if not token or attributes is None or attributes.cache_type == "Token":
            return
        if any(login.get("password") == token for login in response.auths.values()):
            raise ProviderError(
                "the response holds the service account token itself as the password: that needs "
                "tokenAttributes.cacheType: Token"
            )
