"""``kubeletpy run``: turns the kubelet's flags into settings, and settings into a running agent.

All problems with flags, files or the machine are printed, without a traceback.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from kubeletpy import config
from kubeletpy.agent.errors import LaunchError
from kubeletpy.base.kubernetes_version import KubernetesVersion, supported
from kubeletpy.base.structs import replace
from kubeletpy.base.tasks import background
from kubeletpy.cli import logs, process, version
from kubeletpy.cli.endings import run_until_signalled
from kubeletpy.cli.process import give_back_freed_memory, keep_little_freed_memory, problems_here
from kubeletpy.config import version_choice
from kubeletpy.config.flags import FLAGS
from kubeletpy.kubeapi.kubeconfig import KubeconfigError, begin_loading
from kubeletpy.metrics.trace.watched_loop import WatchedLoop

logger = logging.getLogger(__name__)

Agent = Callable[[config.LoadedConfig], Coroutine[Any, Any, None]]
"""Runs until cancelled; raises ConfigError (or another of EXPECTED) when it cannot start."""


def main(arguments: Sequence[str], agent: Agent | None = None) -> int:
    """Run the agent with a command line; returns the exit code.

    Args:
        arguments: the kubelet's flags.
        agent: what to run; ``run_agent`` of :mod:`kubeletpy.agent.launch` when None.
    """
    try:
        flags = config.parse_flags(arguments)
        if flags.node.help:
            print(usage())
            return 0
        if flags.node.version:
            here = config.printed_version(flags.node)
            full = flags.node.version == "raw"
            print(version.raw(here) if full else f"Kubernetes {here.kubelet}")
            return 0
        # the runtime gets paths below it, and has its own working directory
        root = str(Path(flags.node.root_dir).absolute())
        flags = replace(flags, node=replace(flags.node, root_dir=root))
        loaded = _load(flags)
    except config.ConfigError as error:
        return fail(error)
    keep_little_freed_memory()
    if agent is None and loaded.node.kubeconfig and Path(loaded.node.kubeconfig).is_file():
        begin_loading(loaded.node.kubeconfig)
    return run(loaded, agent or _default_agent())


def run(loaded: config.LoadedConfig, agent: Agent, *, log_configuration: bool = True) -> int:
    """Run an agent until SIGINT or SIGTERM; returns the exit code.

    ``log_configuration``: log the effective configuration too, not only warnings about it.
    """
    from kubeletpy.agent.launch.runtime import log_settings

    handler = logs.set_up(loaded.settings.logging)
    try:
        log_settings(loaded, configuration=log_configuration)
        run_until_signalled(_with_upkeep(agent, loaded), loop_factory=WatchedLoop)
    except KeyboardInterrupt:
        return 0
    except (config.ConfigError, KubeconfigError, LaunchError) as error:
        handler.close()
        return fail(error)
    except Exception:  # the last boundary: whatever ended the agent is logged in full
        logger.critical("the agent ended", exc_info=True)
        return 1
    finally:
        handler.close()
    return 0


def fail(error: Exception | str) -> int:
    """Print what the user has to fix; returns the exit code."""
    print(f"kubeletpy: {error}", file=sys.stderr)
    return 1


def usage() -> str:
    """Every flag and what it is for."""
    lines = ["usage: kubeletpy run [flags]", ""]
    for flag in FLAGS.values():
        name = f"--{flag.name}" + ("" if flag.kind in ("bool", "version") else " VALUE")
        about = f"sets {flag.field}" if flag.field else ""
        note = {"meaningless": "accepted, without meaning here"}.get(flag.note, flag.note)
        text = f"{about} ({note})" if about and note else about or note
        lines.append(f"  {name:<55} {text}".rstrip())
    return "\n".join(lines)


async def _with_upkeep(agent: Agent, loaded: config.LoadedConfig) -> None:
    """Run the agent, and return freed memory to the kernel."""
    async with background(give_back_freed_memory()):
        await agent(loaded)


def _load(flags: config.FlagValues) -> config.LoadedConfig:
    """The settings for the version that applies until the API server answers.

    If they are wrong for that version, which may not be the server's, the server is queried first.
    Raises ConfigError.
    """
    try:
        return config.load_files(flags, problems_here)
    except config.ConfigError:
        other = _version_of_server(flags.node)
        if other in (None, config.expected_version(flags.node)):
            raise
    return config.load_files(flags, problems_here, other)


def _version_of_server(node: config.NodeFlags) -> KubernetesVersion | None:
    paths = [path for path in (node.kubeconfig, node.bootstrap_kubeconfig) if Path(path).is_file()]
    if supported(node.kubernetes_version) is not None or not node.kubeconfig or not paths:
        return None
    from kubeletpy.agent.launch.runtime import query_kubeconfig_version

    answer = run_until_signalled(query_kubeconfig_version(paths[0]))
    found = version_choice.decide(None, answer, None)
    return found.version if found.source is version_choice.VersionSource.SERVER else None


def _default_agent() -> Agent:
    process.skip_package_imports()
    with process.importing():
        agent: Agent = importlib.import_module("kubeletpy.agent.launch").run_agent
    return agent
