"""The agent's settings: the KubeletConfiguration file, drop-ins and flags as one frozen object.

Pure but for :mod:`kubeletpy.config.files`. Imports nothing from the rest of the project.
"""

from kubeletpy.config.decode import document, text_for_log
from kubeletpy.config.effects import Notice, in_effect
from kubeletpy.config.fields import PROTOBUF
from kubeletpy.config.files import expected_version, load_files, printed_version
from kubeletpy.config.flags import FlagValues, NodeFlags, check_node_name, parse_flags
from kubeletpy.config.load import LoadedConfig, default_settings, load, load_document
from kubeletpy.config.problems import ConfigError, Problem
from kubeletpy.config.rules import check_host
from kubeletpy.config.settings import KubeletSettings

__all__ = [
    "PROTOBUF",
    "ConfigError",
    "FlagValues",
    "KubeletSettings",
    "LoadedConfig",
    "NodeFlags",
    "Notice",
    "Problem",
    "check_host",
    "check_node_name",
    "default_settings",
    "document",
    "expected_version",
    "in_effect",
    "load",
    "load_document",
    "load_files",
    "parse_flags",
    "printed_version",
    "text_for_log",
]
