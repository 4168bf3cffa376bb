"""Turns documents and flags into validated settings; reports all problems at once.

Pure: texts in, settings out. Precedence (docs/reference/config.csv): defaults, then the file, then
its drop-ins as JSON merge patches in order, then flags; feature gates given by flag change only
those gates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kubeletpy.base.api.json_patch import apply_merge_patch
from kubeletpy.base.kubernetes_version import NEWEST, KubernetesVersion, supported
from kubeletpy.base.structs import Struct
from kubeletpy.config import cross_rules, decode, effects
from kubeletpy.config.fields import API_VERSION, KIND
from kubeletpy.config.flags import FlagValues, NodeFlags
from kubeletpy.config.problems import ConfigError, Problem, ProblemReport, show
from kubeletpy.config.settings import KubeletSettings

_NO_FILE_DEFAULTS: Mapping[str, Any] = {"evictionHard": {}}
"""The kubelet's defaults without a configuration file, except those that would open ports to
everybody: anonymous access, AlwaysAllow, read-only port. These must be requested explicitly."""

_NO_FILE_NO_API: Mapping[str, Any] = {
    "authentication.webhook.enabled": False,
    "authorization.mode": "AlwaysAllow",
}
"""More of the kubelet's defaults without a file, and the only way to allow access without an API
for reviews: clients with a certificate from authentication.x509.clientCAFile."""


Check = Callable[[KubeletSettings, NodeFlags], list[Problem]]
"""Finds problems that depend on more than the settings: on the machine, on files."""


OfVersion = Callable[[KubernetesVersion], "LoadedConfig"]


class LoadedConfig(Struct, frozen=True):
    """Settings ready to use.

    Attributes:
        settings: validated.
        node: flags without a field in the document.
        warnings: for the log, in order.
        of_version: reads the same texts for another version. Raises ConfigError.
        notices: what was requested and has no effect.
    """

    settings: KubeletSettings
    node: NodeFlags
    warnings: tuple[str, ...]
    of_version: OfVersion
    notices: tuple[effects.Notice, ...] = ()


def load(
    file_text: str | None,
    dropins: Sequence[tuple[str, str]] = (),
    flag_values: FlagValues | None = None,
    *,
    file_name: str = "",
    base_dir: str = "",
    version: KubernetesVersion = NEWEST,
    check: Check | None = None,
    strict: bool = False,
) -> LoadedConfig:
    """Build the settings.

    Args:
        file_text: the KubeletConfiguration file; None when there is none.
        dropins: (name, text) of the drop-in files, in the order they apply.
        flag_values: from :func:`kubeletpy.config.flags.parse_flags`.
        file_name: shown in messages.
        base_dir: the file's directory, against which a relative ``staticPodPath`` is resolved.
        version: the Kubernetes version whose fields, defaults and feature gates apply, unless
            ``--kubernetes-version`` names one.
        check: finds further problems, such as settings that do not fit the machine. Fields whose
            values could not be read have their defaults then, and their problems do not count.
        strict: unknown fields and duplicates are problems, as in the program's own configuration.

    Raises:
        ConfigError: with every problem.
    """
    flag_values = flag_values or FlagValues()
    version = supported(flag_values.node.kubernetes_version) or version
    warnings = list(flag_values.warnings)
    documents = [] if file_text is None else [(file_name, file_text)]
    merged, problems, dropped = _merge_documents([*documents, *dropins], version, strict=strict)
    warnings += map(str, dropped)
    found = decode.without_zeros(decode.leaves(merged, ProblemReport(version=version)))
    if not documents and not dropins:
        warnings.append(
            "no configuration file: there are no eviction thresholds; unlike the kubelet's, ports "
            "stay closed to anonymous clients unless flags open them"
        )
        alone = {} if flag_values.node.kubeconfig else _NO_FILE_NO_API
        found = {**_NO_FILE_DEFAULTS, **alone, **found}

    from_flags, flag_problems = _decode_flags(flag_values, found, version)
    problems += flag_problems
    report = ProblemReport(version=version)
    values = decode.decode({**found, **from_flags}, report)
    bad = report.bad | {problem.field for problem in problems}
    explicit = frozenset(found) | frozenset(from_flags)
    settings, derived = decode.derive(
        decode.build(values, version), explicit, base_dir=base_dir, by_flag=frozenset(from_flags)
    )
    problems += cross_rules.check(cross_rules.SettingsInput(settings, explicit), bad)
    if check is not None:
        named = bad | {problem.field for problem in problems}
        found_here = check(settings, flag_values.node)
        problems += [problem for problem in found_here if problem.field not in named]
    if problems:
        raise ConfigError(dict.fromkeys(problems), dict.fromkeys(dropped))
    notices = effects.notices(
        settings, explicit, flag_values.ignored, flag_values.node.cloud_provider
    )
    said = (*warnings, *derived, *effects.lines(notices))
    again = partial(
        load, file_text, dropins, flag_values, file_name=file_name, base_dir=base_dir, check=check
    )
    return LoadedConfig(
        settings,
        flag_values.node,
        said,
        lambda version: again(version=version),
        notices,
    )


def default_settings(version: KubernetesVersion = NEWEST, /, **fields: Any) -> KubeletSettings:
    """Settings of an empty document with these top-level fields set: for tests.

    Raises:
        ConfigError: a value that is not allowed.
    """
    document = {"apiVersion": API_VERSION, "kind": KIND, **fields}
    return load_document(document, version=version).settings


def load_document(
    document: Mapping[str, Any],
    flag_values: FlagValues | None = None,
    *,
    file_name: str = "",
    version: KubernetesVersion = NEWEST,
    strict: bool = False,
) -> LoadedConfig:
    """Make settings from a document that is already decoded.

    ``file_name``, ``version`` and ``strict`` are as for :func:`load`. Raises ConfigError.
    """
    problems: list[Problem] = []
    plain = _as_json(document, "", file_name, problems)
    if problems:
        raise ConfigError(problems)
    return load(
        json.dumps(plain),
        (),
        flag_values,
        file_name=file_name,
        version=version,
        strict=strict,
    )


def _as_json(value: object, at: str, source: str, problems: list[Problem]) -> Any:
    """A value as JSON has it; a problem for each that no document can have, such as a Path."""
    if isinstance(value, Mapping):
        return {
            str(key): _as_json(each, f"{at}.{key}" if at else str(key), source, problems)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            _as_json(each, f"{at}[{index}]", source, problems) for index, each in enumerate(value)
        ]
    if not isinstance(value, str | int | float | bool | None):
        kind = type(value).__name__
        allowed = f"must be a text, a number, true or false, a list or an object, not a {kind}"
        problems.append(Problem(at, show(at, str(value)), allowed, source))
    return value


def _merge_documents(
    documents: Sequence[tuple[str, str]], version: KubernetesVersion, *, strict: bool
) -> tuple[dict[str, Any], list[Problem], list[Problem]]:
    """The merged document, the problems, and what was dropped.

    Each document is checked by itself, so that a problem names the file it is in.
    """
    merged: dict[str, Any] = {}
    problems: list[Problem] = []
    dropped: list[Problem] = []
    for name, text in documents:
        report = ProblemReport(name, version, strict=strict)
        document = decode.parse(text, report)
        decode.decode(decode.without_zeros(decode.leaves(document, report)), report)
        problems += report.problems
        dropped += report.lenient
        merged = apply_merge_patch(merged, document)
    return merged, problems, dropped


def _decode_flags(
    flag_values: FlagValues, found: Mapping[str, Any], version: KubernetesVersion
) -> tuple[dict[str, Any], list[Problem]]:
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for path, given in flag_values.fields.items():
        value = given.value
        if path == "seccompDefault":
            value = bool(value or found.get(path))
        report = ProblemReport(given.flag, version)
        decode.decode({path: value}, report)
        problems += report.problems
        if path == "featureGates" and isinstance(found.get(path), dict):
            value = {**found[path], **value}
        values[path] = value
    return values, problems
