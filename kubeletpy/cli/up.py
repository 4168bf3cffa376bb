"""``kubeletpy up``: a node with its own embedded Kubernetes API, on one machine.

Starts the API, then the same agent that ``run`` starts, joined to it with a node's identity. Its
state is below the state directory; a second start continues where the first one stopped. The API is
a separate distribution, ``kubeletpy[up]``: nothing else in this package imports it.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import ipaddress
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from kubeletpy import config
from kubeletpy.agent.errors import LaunchError
from kubeletpy.base.kubernetes_version import NEWEST
from kubeletpy.base.structs import replace
from kubeletpy.base.tasks import background, until_one_ends
from kubeletpy.base.text import first_line
from kubeletpy.cli import process, run
from kubeletpy.cli.ports import API, KUBELET, UP_PORTS, choose_ports, port
from kubeletpy.cli.process import keep_little_freed_memory
from kubeletpy.remote.connection import EndpointError, socket_path

if TYPE_CHECKING:
    from kubeletpy_up.api import Endpoint, LocalApi

LOCK = "lock"
"""A file in the state directory that its process has locked. It contains the process id."""
DEFAULT_STATE = "/var/lib/kubeletpy/node"
NOT_INSTALLED = (
    "the embedded API is not installed: pip install ./up in the checkout, or "
    "pip install --find-links DIR 'kubeletpy[up]' with a release's wheels in DIR"
)
OWN_MACHINE: Mapping[str, object] = {
    "failSwapOn": False,
    "failCgroupV1": False,
    "makeIPTablesUtilChains": False,
    # its disk is not the node's alone: 15 % of it, the usual threshold, is far from short
    "evictionHard": {
        "memory.available": "100Mi",
        "nodefs.available": "5%",
        "nodefs.inodesFree": "5%",
        "imagefs.available": "5%",
        "imagefs.inodesFree": "5%",
    },
    "imageGCHighThresholdPercent": 95,
    "imageGCLowThresholdPercent": 90,
}
_LEAVES_CONTAINERS = "stops the agent and leaves the containers running."
DEFAULT_ENDPOINT = "unix:///run/containerd/containerd.sock"


def main(arguments: Sequence[str]) -> int:
    """Run with a command line; returns the exit code."""
    begun = time.monotonic()
    parsed = parser().parse_args(arguments)
    if importlib.util.find_spec("kubeletpy_up") is None:
        return run.fail(NOT_INSTALLED)
    if parsed.rootless:
        return run.fail("write --rootless in full")  # with it, main.py runs another module
    return start(parsed, begun)


def start(
    parsed: argparse.Namespace,
    begun: float,
    settings: Mapping[str, object] = {},
    *,
    notices: Sequence[config.Notice] = (),
    listening: Sequence[socket.socket] = (),
) -> int:
    """Run API and agent until they are signalled; returns the exit code.

    Args:
        begun: when the command began, on the monotonic clock.
        settings: fields of the configuration, unless its file has them.
        notices: what is not honoured here, for ``explain --node``.
        listening: more sockets of the API.
    """
    if owner := running_pid(parsed.state_dir):
        return run.fail(runs_already(parsed.state_dir, owner))
    try:
        loaded = load(parsed, settings=settings)
    except config.ConfigError as error:
        return run.fail(error)
    loaded = replace(loaded, notices=(*loaded.notices, *notices))
    node_name = loaded.node.hostname_override
    keep_little_freed_memory()
    import_agent()
    # a person reads the terminal; /configz has it
    return run.run(
        loaded,
        lambda settings: up(settings, parsed, node_name, begun, listening),
        log_configuration=False,
    )


@cache
def import_agent() -> None:
    """Import the agent and the embedded API, which takes most of the time of a start."""
    with process.importing():
        for name in ("kubeletpy.agent.launch", "kubeletpy_up.api"):
            importlib.import_module(name)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy up", description="Start a node with its own embedded Kubernetes API."
    )
    made.add_argument(
        "--state-dir",
        type=_directory,
        default=DEFAULT_STATE,
        help=f"the state directory ({DEFAULT_STATE})",
    )
    for each in UP_PORTS:
        usual = f"{each.usual}, or a free one if that is taken"
        made.add_argument(each.option, type=port, metavar="PORT", help=f"for {each.use} ({usual})")
    made.add_argument(
        "--kubelet-address",
        metavar="IP",
        help=f"for {KUBELET.use} ({KUBELET.address}; 0.0.0.0: all addresses of the machine)",
    )
    made.add_argument("--node-name", default=socket.gethostname().strip().lower())
    made.add_argument("--container-runtime-endpoint", default=DEFAULT_ENDPOINT)
    made.add_argument(
        "--cgroup-driver",
        choices=["cgroupfs", "systemd"],
        help="of the runtime, unless --config has cgroupDriver (cgroupfs)",
    )
    made.add_argument(
        "--rootless",
        action="store_true",
        help="run containers as a login user, with a containerd of its own (docs/rootless.md)",
    )
    made.add_argument("--config", help="a KubeletConfiguration file for the node")
    made.add_argument("-v", "--verbosity", type=int, default=0, help="of the log, 0 to 10")
    return made


def _directory(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("an empty path is not a directory")
    return Path(text).absolute()


def load(
    parsed: argparse.Namespace,
    report: Callable[[str], None] = print,
    settings: Mapping[str, object] = {},
) -> config.LoadedConfig:
    """The node's settings: those of the file, plus what a single machine needs.

    Sets ``parsed.port``, too. ``report`` is called with a line for each port that is chosen because
    the usual one is taken. ``settings`` are fields that apply unless the file has them.

    Raises:
        ConfigError: the file or a flag is invalid, or a port that they name is taken.
    """
    problems = config.check_node_name(parsed.node_name, "--node-name")
    if not parsed.node_name:
        problems.append(config.Problem("--node-name", "", "must not be empty"))
    try:
        socket_path(parsed.container_runtime_endpoint)
    except EndpointError as error:
        flag, value = "--container-runtime-endpoint", parsed.container_runtime_endpoint
        problems.append(config.Problem(flag, value, str(error)))
    if problems:
        raise config.ConfigError(problems)
    document: dict[str, object]
    if parsed.config is not None:
        document = _read_config(parsed.config)
    else:
        document = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            **OWN_MACHINE,
        }
    if parsed.cgroup_driver:
        document.setdefault("cgroupDriver", parsed.cgroup_driver)
    for name, value in settings.items():
        document.setdefault(name, value)
    state: Path = parsed.state_dir
    _serve_the_api(document, state / "api" / "pki")
    if parsed.kubelet_address:
        document["address"] = parsed.kubelet_address
    elif document.get("address") in (None, ""):
        document["address"] = KUBELET.address
    ports, problems = choose_ports(vars(parsed), document, report)
    if problems:
        raise config.ConfigError(problems)
    parsed.port = ports[API]
    document.update({each.field: number for each, number in ports.items() if each.field})
    flags = [
        f"--root-dir={state / 'kubelet'}",
        f"--device-plugins-dir={state / 'kubelet' / 'device-plugins'}",
        f"--hostname-override={parsed.node_name}",
        f"--container-runtime-endpoint={parsed.container_runtime_endpoint}",
        f"--kubeconfig={state / 'api' / 'node.kubeconfig'}",
        f"--v={parsed.verbosity}",
        # that of the embedded API
        f"--kubernetes-version={NEWEST}",
        # somebody's own machine, not a dedicated node
        "--keep-kernel-settings",
        # a cluster's DNS is part of a cluster
        "--no-cluster-dns",
    ]
    # our own flags, not the user's: users need no deprecation warnings about them
    flag_values = replace(config.parse_flags(flags), warnings=())
    return config.load_document(document, flag_values, file_name=parsed.config or "")


def _read_config(file: str) -> dict[str, object]:
    """A configuration file as a document. Raises ConfigError."""
    import yaml

    try:
        read = yaml.safe_load(Path(file).read_text(errors="replace"))
        if isinstance(read, dict):
            return read
        why = "a KubeletConfiguration document"
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
    except yaml.YAMLError as error:
        why = f"YAML or JSON ({first_line(error)})"
    raise config.ConfigError([config.Problem("--config", file, why)])


def _serve_the_api(document: dict[str, object], pki: Path) -> None:
    """How the embedded API reaches the node's server, unless the file has another value."""
    authentication = document.setdefault("authentication", {})
    if isinstance(authentication, dict):
        x509 = authentication.setdefault("x509", {})
        if isinstance(x509, dict):
            x509.setdefault("clientCAFile", str(pki / "ca.crt"))
    if "tlsCertFile" not in document and "tlsPrivateKeyFile" not in document:
        document["tlsCertFile"] = str(pki / "kubelet-server.crt")
        document["tlsPrivateKeyFile"] = str(pki / "kubelet-server.key")


def host_to_connect(address: str) -> str:
    """Where to connect to what listens at an address; empty if that is each of the node's."""
    return "" if ipaddress.ip_address(address).is_unspecified else address


async def up(
    loaded: config.LoadedConfig,
    parsed: argparse.Namespace,
    node_name: str,
    begun: float,
    listening: Sequence[socket.socket] = (),
) -> None:
    """Serve the API and run the agent until cancelled."""
    from kubeletpy.agent.launch import make_agent
    from kubeletpy.node.node_manager import NodeManager
    from kubeletpy_up.api import LocalApi

    state: Path = parsed.state_dir
    gates = loaded.settings.feature_gates.effective
    local = LocalApi(
        state / "api",
        node_name,
        port=parsed.port,
        service_account_volumes=True,
        volumes_dir=state / "volumes",
        single_node=True,
        feature_gates=[name for name, on in gates.items() if on],
        listening=listening,
        kubelet_host=host_to_connect(loaded.settings.address),
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(closing(lock(state)))
        endpoint = await _started(local, parsed)
        stack.push_async_callback(local.stop)
        print(
            f"API {endpoint.url} (data in {state / 'api'}, "
            f"administrator: {endpoint.admin_kubeconfig})",
            flush=True,
        )
        agent = await make_agent(loaded, stack)
        async with background(agent.run()) as running:
            if (node := agent.find(NodeManager)) is not None:
                async with background(node.registered.wait()) as registered:
                    await until_one_ends(running, registered)
            if not running.done():
                seconds = time.monotonic() - begun
                print("To use the node, copy into another terminal:")
                print("\n".join(lines_to_copy(endpoint.admin_kubeconfig)))
                print(
                    f"node {node_name} registered {seconds:.1f} s after the start. Ctrl-C "
                    + ("ends all." if parsed.rootless else _LEAVES_CONTAINERS),
                    file=sys.stdout,
                    flush=True,
                )
            await running


def lines_to_copy(kubeconfig: Path) -> list[str]:
    """Shell lines for using the node: the commands' path, the kubeconfig, a pod, the view.

    The path is left out if `kubeletpy` is on it.
    """
    from kubeletpy.cli.deploy_files import deploy_folder

    lines = []
    programs = Path(sys.executable).parent
    if shutil.which("kubeletpy") is None and (programs / "kubeletpy").exists():
        lines.append(f"export PATH={shlex.quote(str(programs))}:$PATH")
    lines.append(f"export KUBECONFIG={shlex.quote(str(kubeconfig))}")
    sample = deploy_folder() / "sample-pod.yaml"
    if sample.is_file():
        lines.append(f"kubectl apply -f {shlex.quote(str(sample))}")
    lines.append("kubeletpy view")
    return lines


def running_pid(state: Path) -> str:
    """The process that holds a state directory; empty: none, or the directory can't be read."""
    try:
        with (state / LOCK).open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read().strip() or "unknown"
    except OSError:
        pass
    return ""


def runs_already(state: Path, owner: str) -> str:
    """The message of a second agent on a state directory."""
    return (
        f"the node of --state-dir {state} runs already (pid {owner}); stop it with Ctrl-C there, "
        "or start another node with another --state-dir and --container-runtime-endpoint"
    )


def lock(state: Path) -> TextIO:
    """Hold the state directory while the file is open: two agents would destroy its state.

    Raises LaunchError.
    """
    try:
        state.mkdir(mode=0o755, parents=True, exist_ok=True)
        file = (state / LOCK).open("a", encoding="utf-8")
    except OSError as error:
        raise LaunchError(f"--state-dir {state} can't be used: {error}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise LaunchError(runs_already(state, running_pid(state))) from error
    file.truncate(0)
    print(os.getpid(), file=file, flush=True)
    return file


async def _started(local: LocalApi, parsed: argparse.Namespace) -> Endpoint:
    """Start the API. Raises LaunchError, which states what to do."""
    from kubeletpy_up.pki.certificates import CertificateError
    from kubeletpy_up.storage.store import StoreError

    try:
        return await local.start()
    except (CertificateError, StoreError) as error:
        raise LaunchError(str(error)) from error
    except OSError as error:
        if error.filename is not None:
            raise LaunchError(f"--state-dir {parsed.state_dir} can't be used: {error}") from error
        raise LaunchError(
            f"the API can't listen on {API.address}:{parsed.port}: {error.strerror or error}; "
            "start again without --port, which chooses a free one"
        ) from error
