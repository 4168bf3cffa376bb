"""Loads a kubelet's settings as the agent would, and reports what has no or another effect here."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from kubeletpy.agent.takeover.preflight.findings import Area, Finding, KubeletFound, Severity
from kubeletpy.agent.takeover.preflight.other_effects import other_effects
from kubeletpy.base.kubernetes_version import KubernetesVersion
from kubeletpy.base.structs import Struct, replace
from kubeletpy.config import ConfigError, FlagValues, LoadedConfig, load_files, parse_flags
from kubeletpy.config.effects import lines
from kubeletpy.config.load import Check

_PATHS = (
    "bootstrap_kubeconfig",
    "cert_dir",
    "config",
    "config_dir",
    "image_credential_provider_bin_dir",
    "image_credential_provider_config",
    "kubeconfig",
    "lock_file",
    "root_dir",
)
"""Flags that hold a path, which may be relative to the kubelet's working directory."""


class LoadedSettings(Struct, frozen=True):
    """The settings, None if the agent would not start with them, and what was found."""

    config: LoadedConfig | None
    findings: tuple[Finding, ...]


def read_flags(kubelet: KubeletFound) -> tuple[FlagValues | None, tuple[Finding, ...]]:
    """The flags of a kubelet with absolute paths; None if the agent would refuse them."""
    try:
        return _absolute(parse_flags(kubelet.arguments), kubelet.directory), ()
    except ConfigError as error:
        return None, tuple(_problems(error))


def load_settings(
    flags: FlagValues, check: Check | None = None, version: KubernetesVersion | None = None
) -> LoadedSettings:
    """The settings of a kubelet, as ``kubeletpy run`` with its flags would have them.

    ``check`` and ``version`` are as for :func:`kubeletpy.config.files.load_files`.
    """
    try:
        config = load_files(flags, check, version)
    except ConfigError as error:
        return LoadedSettings(None, tuple(_problems(error)))
    return LoadedSettings(config, tuple(_findings(config)))


def _problems(error: ConfigError) -> list[Finding]:
    found = []
    for each in error.problems:
        subject = f"{each.source}: {each.field}" if each.source != each.field else each.field
        subject = subject.removeprefix(": ")
        what = f"{each.value}: {each.allowed}" if each.value else each.allowed
        then = "the agent does not start with it"
        found.append(Finding(Area.SETTINGS, Severity.BLOCKS, subject, what, then))
    return found + [Finding(Area.SETTINGS, Severity.NOTE, str(each), "") for each in error.warnings]


def _findings(config: LoadedConfig) -> list[Finding]:
    without_effect = set(lines(config.notices))
    notes = [
        Finding(Area.SETTINGS, Severity.NOTE, text, "")
        for text in config.warnings
        if text not in without_effect
    ]
    differing = [
        Finding(Area.SETTINGS, Severity.DIFFERS, each.name, each.value, each.consequence)
        for each in (*config.notices, *other_effects(config.settings, config.node))
    ]
    return [*differing, *notes]


def _absolute(flags: FlagValues, directory: str) -> FlagValues:
    """The flags with relative paths resolved against the kubelet's working directory."""
    node = flags.node
    changed: dict[str, Any] = {
        name: str(PurePosixPath(directory, value))
        for name in _PATHS
        if (value := getattr(node, name)) and not value.startswith("/")
    }
    return replace(flags, node=replace(node, **changed)) if changed else flags
