"""CredentialProviderConfig: programs that return registry credentials, read strictly. Pure.

Source: docs/reference/config.csv: CredentialProviderConfig; KEP-2133 and KEP-4412. A problem names
the file, the provider and the field. Must never run or search for a program.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from kubeletpy.base.structs import Struct
from kubeletpy.config import decode
from kubeletpy.config import decoders as d
from kubeletpy.config.problems import ConfigError, Problem, ProblemReport
from kubeletpy.config.rules import qualified_name

KIND = "CredentialProviderConfig"
VERSIONS = tuple(f"kubelet.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
EXEC_GROUP = "credentialprovider.kubelet.k8s.io"
EXEC_VERSIONS = (f"{EXEC_GROUP}/v1", f"{EXEC_GROUP}/v1beta1", f"{EXEC_GROUP}/v1alpha1")
CACHE_TYPES = ("ServiceAccount", "Token")
TOKENS_GATE = "KubeletServiceAccountTokenForCredentialProviders"
_MATCH_IMAGE = re.compile(r"[^\s/:@]+(:\d{1,5})?(/[^\s]*)?")


class TokenAttributes(Struct, frozen=True):
    """The service account data that a provider receives."""

    service_account_token_audience: str
    cache_type: str
    require_service_account: bool
    required_service_account_annotation_keys: tuple[str, ...] = ()
    optional_service_account_annotation_keys: tuple[str, ...] = ()


class EnvironmentVariable(Struct, frozen=True):
    """One variable of a provider's environment."""

    name: str
    value: str


class CredentialProvider(Struct, frozen=True):
    """One program that returns credentials, and when it is run."""

    name: str
    """The name of its file in the bin directory."""
    match_images: tuple[str, ...]
    default_cache_duration: float
    """Seconds."""
    api_version: str
    """The API version of the request that it reads and the response that it writes."""
    args: tuple[str, ...] = ()
    env: tuple[EnvironmentVariable, ...] = ()
    token_attributes: TokenAttributes | None = None


class CredentialProviderConfig(Struct, frozen=True):
    """All of them, in the order in which their credentials are tried."""

    providers: tuple[CredentialProvider, ...]
    config_hash: str
    """``sha256:…`` over the files, for metrics."""


def load_credential_providers(
    documents: Sequence[tuple[str, bytes]], *, token_gate: bool = True
) -> CredentialProviderConfig:
    """Make one configuration of all files.

    Args:
        documents: (name, content) of the files in order.
        token_gate: whether feature gate KubeletServiceAccountTokenForCredentialProviders is on.

    Raises:
        ConfigError: with every problem of every file.
    """
    problems: list[Problem] = []
    found: list[CredentialProvider] = []
    seen: dict[str, str] = {}
    hashed = hashlib.sha256()
    for file, content in documents:
        hashed.update(len(content).to_bytes(8, "big") + content)
        report = ProblemReport(file, strict=True)
        for provider in _parse_providers(content, report, token_gate=token_gate):
            if provider.name in seen:
                where = "" if seen[provider.name] == file else f", first in {seen[provider.name]}"
                at = f"providers[{provider.name}].name"
                report.add(at, provider.name, f"is given twice{where}")
            seen.setdefault(provider.name, file)
            found.append(provider)
        problems += report.problems
    if problems:
        raise ConfigError(problems)
    return CredentialProviderConfig(tuple(found), f"sha256:{hashed.hexdigest()}")


def _parse_providers(
    content: bytes, report: ProblemReport, *, token_gate: bool
) -> list[CredentialProvider]:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        report.add("(document)", None, "is not UTF-8", missing=True)
        return []
    document = decode.parse(text, report, versions=VERSIONS, kind=KIND)
    if report.problems:
        return []
    for field in document.keys() - {"apiVersion", "kind", "providers"}:
        report.add(str(field), document[field], d.unknown(str(field), ["providers"]))
    entries = document.get("providers")
    if not isinstance(entries, list) or not entries:
        report.add("providers", entries, "must be a list of at least one provider")
        return []
    found = []
    for index, entry in enumerate(entries):
        name = entry.get("name") if isinstance(entry, dict) else None
        at = f"providers[{name if isinstance(name, str) and name else index}]"
        before = len(report.problems)
        provider = _PROVIDER(entry, at, report)
        if provider is not None:
            _check(provider, at, report, config_version=document["apiVersion"], gate=token_gate)
        if len(report.problems) == before:
            found.append(provider)
    return found


def _check(
    provider: CredentialProvider, at: str, report: ProblemReport, *, config_version: str, gate: bool
) -> None:
    name = provider.name
    if not name or "/" in name or " " in name or name in (".", "..") or not name.isprintable():
        report.add(f"{at}.name", name, "must be the name of a program, without / and spaces")
    if provider.api_version not in EXEC_VERSIONS:
        report.add(
            f"{at}.apiVersion", provider.api_version, f"must be one of {', '.join(EXEC_VERSIONS)}"
        )
    if not provider.match_images:
        report.add(f"{at}.matchImages", [], "must hold at least one pattern")
    for index, pattern in enumerate(provider.match_images):
        if not _MATCH_IMAGE.fullmatch(pattern):
            allowed = "must be host[:port][/path], without a scheme"
            report.add(f"{at}.matchImages[{index}]", pattern, allowed)
    if provider.default_cache_duration < 0:
        reported = f"{provider.default_cache_duration:g}s"
        report.add(f"{at}.defaultCacheDuration", reported, "must not be negative")
    for index, argument in enumerate(provider.args):
        if "\0" in argument:
            report.add(f"{at}.args[{index}]", None, "must not hold a NUL character")
    for index, variable in enumerate(provider.env):
        if not variable.name or "=" in variable.name or "\0" in variable.name + variable.value:
            report.add(f"{at}.env[{index}].name", variable.name, "is not the name of a variable")
    if provider.token_attributes is not None:
        where = f"{at}.tokenAttributes"
        _check_token(provider.token_attributes, where, report)
        if not gate:
            report.add(where, None, f"needs feature gate {TOKENS_GATE}", missing=True)
        if config_version != VERSIONS[0]:
            report.add(where, None, f"needs a {KIND} of {VERSIONS[0]}", missing=True)
        if provider.api_version != EXEC_VERSIONS[0]:
            report.add(where, None, f"needs apiVersion: {EXEC_VERSIONS[0]}", missing=True)


def _check_token(token: TokenAttributes, at: str, report: ProblemReport) -> None:
    if not token.service_account_token_audience:
        report.add(f"{at}.serviceAccountTokenAudience", "", "must not be empty")
    if token.cache_type not in CACHE_TYPES:
        report.add(f"{at}.cacheType", token.cache_type, f"must be one of {', '.join(CACHE_TYPES)}")
    required = token.required_service_account_annotation_keys
    optional = token.optional_service_account_annotation_keys
    if required and not token.require_service_account:
        allowed = "needs requireServiceAccount: true"
        report.add(f"{at}.requiredServiceAccountAnnotationKeys", list(required), allowed)
    for field, keys in (("required", required), ("optional", optional)):
        where = f"{at}.{field}ServiceAccountAnnotationKeys"
        for key in keys:
            if not qualified_name(key.lower()):
                report.add(where, key, "is not an annotation key")
        if len(set(keys)) != len(keys):
            report.add(where, list(keys), "must not hold a key twice")
    if both := sorted(set(required) & set(optional)):
        report.add(at, both, "annotation keys cannot be both required and optional")


_STRINGS = d.list_of(d.string)
_TOKEN = d.struct_of(
    TokenAttributes,
    {
        "serviceAccountTokenAudience": (d.string, ...),
        "cacheType": (d.string, ...),
        "requireServiceAccount": (d.boolean, ...),
        "requiredServiceAccountAnnotationKeys": (_STRINGS, ()),
        "optionalServiceAccountAnnotationKeys": (_STRINGS, ()),
    },
)
_ENVIRONMENT = d.struct_of(EnvironmentVariable, {"name": (d.string, ...), "value": (d.string, "")})
_PROVIDER = d.struct_of(
    CredentialProvider,
    {
        "name": (d.string, ...),
        "matchImages": (_STRINGS, ...),
        "defaultCacheDuration": (d.duration, ...),
        "apiVersion": (d.string, ...),
        "args": (_STRINGS, ()),
        "env": (d.list_of(_ENVIRONMENT), ()),
        "tokenAttributes": (_TOKEN, None),
    },
)
