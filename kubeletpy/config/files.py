"""Reads the configuration and that of credential providers; records the Kubernetes version.

The only part of this package that touches the disk. It decides nothing about their content.
"""

from __future__ import annotations

import os
from pathlib import Path

from kubeletpy.base.kubernetes_version import NEWEST, OLDEST, KubernetesVersion, supported
from kubeletpy.config.flags import FlagValues, NodeFlags
from kubeletpy.config.load import Check, LoadedConfig, load
from kubeletpy.config.problems import ConfigError, Problem
from kubeletpy.config.version_choice import MAX_RECORD_BYTES, read_record

_MAX_BYTES = 4 * 1024 * 1024
VERSION_RECORD = "kubernetes-version"
"""In the root directory: the version that the API server stated at the last start."""


def load_files(
    flag_values: FlagValues, check: Check | None = None, version: KubernetesVersion | None = None
) -> LoadedConfig:
    """Settings from the files that ``--config`` and ``--config-dir`` name, and from all flags.

    ``check`` is as for :func:`kubeletpy.config.load.load`: all problems are reported together.
    ``version`` None: the one that probably applies: that of the flag, else of the last start,
    else the newest.

    Raises:
        ConfigError: unreadable files, and everything :func:`kubeletpy.config.load.load` raises.
    """
    node = flag_values.node
    problems: list[Problem] = []
    text = _read_config_file(Path(node.config), "--config", problems) if node.config else None
    dropins = []
    if node.config_dir:
        for path in _dropin_paths(Path(node.config_dir), problems):
            content = _read_config_file(path, "--config-dir", problems)
            if content is not None:
                dropins.append((str(path), content))
    if problems:
        raise ConfigError(problems)
    base_dir = str(Path(node.config).resolve().parent) if node.config else ""
    version = version or expected_version(node)
    return load(
        text,
        dropins,
        flag_values,
        file_name=node.config,
        base_dir=base_dir,
        version=version,
        check=check,
    )


def expected_version(node: NodeFlags) -> KubernetesVersion:
    """The version that the configuration is read for before an API server has answered."""
    requested = supported(node.kubernetes_version)
    record = read_version_record(node.root_dir) if requested is None and node.kubeconfig else None
    return requested or record or NEWEST


def printed_version(node: NodeFlags) -> KubernetesVersion:
    """The version that ``--version`` prints: that of the flag, else of the last start, else the
    oldest. ``kubeadm init`` runs it without flags, and refuses one that is newer than its own."""
    return supported(node.kubernetes_version) or read_version_record(node.root_dir) or OLDEST


def read_version_record(root_dir: str) -> KubernetesVersion | None:
    """The version of the last start with an answer; None when there is no readable record."""
    try:
        with Path(root_dir, VERSION_RECORD).open("rb") as file:
            return read_record(file.read(MAX_RECORD_BYTES))
    except OSError:
        return None  # decide() names what follows from it


def _dropin_paths(directory: Path, problems: list[Problem]) -> list[Path]:
    """All ``*.conf`` below a directory, each directory's entries in the order of their names."""
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError as error:
        allowed = f"cannot be read: {error.strerror}"
        problems.append(Problem("--config-dir", str(directory), allowed))
        return []
    paths: list[Path] = []
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            paths += _dropin_paths(Path(entry.path), problems)
        elif entry.name.endswith(".conf"):
            paths.append(Path(entry.path))
    return paths


def _read_config_file(path: Path, flag: str, problems: list[Problem]) -> str | None:
    try:
        return read_limited(path, flag).decode()
    except UnicodeDecodeError:
        problems.append(Problem(flag, str(path), "is not UTF-8"))
    except ConfigError as error:
        problems += error.problems
    return None


def read_limited(path: Path, flag: str) -> bytes:
    """A file that a flag names. Raises ConfigError: it can't be read, or has more than 4 MiB."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        raise ConfigError([Problem(flag, str(path), reason)]) from error
    if len(content) > _MAX_BYTES:
        raise ConfigError([Problem(flag, str(path), "is larger than 4 MiB")])
    return content


# Files of ``--image-credential-provider-config``: one, or all of a directory.

FLAG = "--image-credential-provider-config"
BIN_DIR_FLAG = "--image-credential-provider-bin-dir"
_SUFFIXES = (".json", ".yaml", ".yml")
_MAX_FILES = 1000


def read_credential_provider_files(path: str) -> list[tuple[str, bytes]]:
    """(name, content) of the file, or of a directory's JSON and YAML files in name order.

    These are ``*.json``, ``*.yaml`` and ``*.yml``.

    Raises:
        ConfigError: there is nothing, or it is not readable.
    """
    try:
        files = _files(Path(path))
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from error
    if not files:
        raise _wrong(path, "holds no *.json, *.yaml or *.yml file")
    return [(str(file), read_limited(file, FLAG)) for file in files]


def check_programs(bin_dir: str, names: tuple[str, ...]) -> None:
    """Check that each provider's program is an executable file in the bin directory.

    Raises:
        ConfigError: naming all that are not.
    """
    if not Path(bin_dir).is_dir():
        raise ConfigError([Problem(BIN_DIR_FLAG, bin_dir, "is not a directory")])
    problems = [
        Problem(f"providers[{name}].name", name, f"must be a program in {bin_dir} ({BIN_DIR_FLAG})")
        for name in names
        if not ((program := Path(bin_dir) / name).is_file() and os.access(program, os.X_OK))
    ]
    if problems:
        raise ConfigError(problems)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        path.stat()
        return [path]
    with os.scandir(path) as entries:
        found = [
            Path(entry.path)
            for entry in entries
            if entry.name.endswith(_SUFFIXES) and not entry.is_dir(follow_symlinks=False)
        ]
    if len(found) > _MAX_FILES:
        raise _wrong(str(path), f"holds more than {_MAX_FILES} files")
    return sorted(found)


def _wrong(path: str, reason: str) -> ConfigError:
    return ConfigError([Problem(FLAG, path, reason)])
