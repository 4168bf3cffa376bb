"""The node that is taken over, or given back: its settings, as the program that runs has them."""

from __future__ import annotations

from pathlib import Path

from kubeletpy.agent.takeover.adopt.host import HostError
from kubeletpy.agent.takeover.preflight.findings import KubeletFound
from kubeletpy.agent.takeover.preflight.processes import read_process
from kubeletpy.agent.takeover.preflight.settings import load_settings, read_flags
from kubeletpy.base.structs import Struct
from kubeletpy.config import LoadedConfig
from kubeletpy.node.machine import read_machine_facts
from kubeletpy.node.options import node_name


class NodeSettings(Struct, frozen=True):
    """Settings of the program that runs a node, and the node's name."""

    config: LoadedConfig
    name: str


def read_node(kubelet: KubeletFound) -> NodeSettings:
    """The settings of a kubelet, or of the agent in its place. Raises HostError."""
    flags, findings = read_flags(kubelet)
    config = None
    if flags is not None:
        loaded = load_settings(flags)
        config, findings = loaded.config, loaded.findings
    if config is None:
        raise HostError(f"{kubelet.source}: {findings[0].text}")
    machine = read_machine_facts(Path(config.node.root_dir))
    return NodeSettings(config, node_name(config.node, machine.hostname))


def running_agent(pid: int) -> KubeletFound:
    """The agent that runs in the kubelet's place. Raises HostError."""
    process = read_process(pid)
    if process is None or "run" not in process.command:
        raise HostError(f"process {pid} is not `kubeletpy run`")
    at = process.command.index("run")
    return KubeletFound(
        f"process {pid}", process.command[0], process.command[at + 1 :], process.directory, (), pid
    )
