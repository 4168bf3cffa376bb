"""Reads what ``--image-credential-provider-config`` names: a file, or all files of a directory.

Must never decide what they may contain.
"""

from __future__ import annotations

import os
from pathlib import Path

from kubeletpy.config.files import read_limited
from kubeletpy.config.problems import ConfigError, Problem

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
