"""``kubeletpy up --rootless`` and ``kubeletpy down``: a node of a login user, and its end.

The process of the terminal stays outside. It holds the state directory's lock and forwards signals
to process 1 of the namespaces, in which containerd and the agent run.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from kubeletpy.agent.errors import LaunchError
from kubeletpy.agent.rootless import containerd as runtime
from kubeletpy.agent.rootless import images, machine, namespaces, possible
from kubeletpy.base.structs import Component
from kubeletpy.cli import run, up
from kubeletpy.cli.ports import API
from kubeletpy.config import ConfigError

IN_SCOPE = "KUBELETPY_IN_SCOPE"
_STOP_S = 20.0
_RESTART_S = 1.0
_SETTINGS = {**up.OWN_MACHINE, "evictionHard": {}, "featureGates": {"KubeletInUserNamespace": True}}
_WITHOUT_LIMITS = {"cgroupsPerQOS": False, "enforceNodeAllocatable": []}


def up_main(arguments: Sequence[str]) -> int:
    """``kubeletpy up --rootless``: run a node until it is signalled; returns the exit code."""
    begun = time.monotonic()
    parsed = up.parser().parse_args(arguments)
    if importlib.util.find_spec("kubeletpy_up") is None:
        return run.fail(up.NOT_INSTALLED)
    directories = machine.default_directories(os.environ)
    named = str(parsed.state_dir) != up.DEFAULT_STATE
    state: Path = parsed.state_dir if named else directories.state
    if owner := up.running_pid(state):
        return run.fail(up.runs_already(state, owner))
    if IN_SCOPE not in os.environ and not machine.own_cgroup() and machine.may_get_cgroup():
        os.environ[IN_SCOPE] = "1"
        program = "import sys; from kubeletpy.cli.main import main; sys.exit(main(sys.argv[1:]))"
        line = [*machine.SCOPE, sys.executable, "-c", program, "up", *arguments]
        os.execvp(line[0], line)
    existed = state.is_dir()
    try:
        facts, environment = _facts(state, directories.cache)
        if why := possible.refusal(facts):
            raise LaunchError(why)
        parsed.state_dir = state / "node"
        up.load(parsed)
    except (ConfigError, LaunchError) as error:
        if not existed:
            shutil.rmtree(state, ignore_errors=True)
        return run.fail(error)
    plan = possible.make_plan(facts)
    group = machine.own_cgroup() if plan.limits else None
    print(possible.render(plan.rows), flush=True)
    listening = [socket.create_server((API.address, parsed.port))] if plan.own_network else []

    def agent(containerd: runtime.RootlessContainerd) -> int:
        parsed.container_runtime_endpoint = containerd.endpoint
        settings = {**_SETTINGS, **({} if plan.limits else _WITHOUT_LIMITS)}
        return up.start(parsed, begun, settings, notices=plan.notices, listening=listening)

    node = Node(plan, state, facts.programs, environment, agent)
    try:
        with closing(up.lock(state)):
            return namespaces.run(plan.ids, group, node.first_process)
    except LaunchError as error:
        return run.fail(error)


def _facts(state: Path, cache: Path) -> tuple[possible.Facts, dict[str, str]]:
    """The facts, after missing programs were fetched; and the environment of programs."""
    environment = machine.environment_of(cache, os.environ)
    facts = machine.read_facts(state, environment, machine.find_programs(environment))
    packages = possible.packages_to_fetch(facts, machine.PACKAGES)
    if facts.refused or facts.state_error or not packages:
        return facts, environment
    print(f"fetching {', '.join(packages)} into {cache} …", flush=True)
    if why := machine.fetch(packages, cache):
        print(f"not fetched: {why}", file=sys.stderr, flush=True)
    environment = machine.environment_of(cache, os.environ)
    return machine.read_facts(state, environment, machine.find_programs(environment)), environment


class Node(Component):
    """The processes in the namespaces.

    Attributes:
        state: the state directory.
        programs: name -> path.
        environment: of the programs.
        agent: runs the agent until it is signalled, and returns its exit code.
    """

    plan: possible.Plan
    state: Path
    programs: Mapping[str, str]
    environment: Mapping[str, str]
    agent: Callable[[runtime.RootlessContainerd], int]

    def first_process(self) -> int:
        """Process 1: start the network, containerd and the agent; returns the agent's exit code."""
        namespaces.set_up_mounts(self.state, own_cgroups=self.plan.limits)
        if self.plan.ids is None:
            namespaces.ignore_chown()
        containerd = runtime.RootlessContainerd(
            self.plan, self.state / "containerd", self.programs, self._environment()
        )
        main, let_go = namespaces.gated(
            lambda: self._run(containerd), own_network=self.plan.own_network
        )
        if self.plan.own_network:
            self._connect(main)
        containerd.write_configuration(Path(f"/proc/{main}/net/route").read_text())
        start = partial(
            namespaces.spawn, containerd.execute, network_of=main if self.plan.own_network else None
        )
        first = start()
        let_go()
        return namespaces.supervise(main, {first: partial(start, delay=_RESTART_S)})

    def _run(self, containerd: runtime.RootlessContainerd) -> int:
        """The process of the agent, in the node's network."""
        if self.plan.own_network:
            containerd.connect_pods(Path("/proc/self/net/route").read_text())
        up.import_agent()  # while containerd starts
        containerd.await_answer()
        busybox = self.programs.get("busybox")
        own = [images.pause_system(images.PAUSE, lambda: Path(busybox or "/bin/busybox"))]
        if busybox:
            own.append(images.busybox_system(Path(busybox), applets(busybox), images.BUSYBOX))
        containerd.import_images(own)
        return self.agent(containerd)

    def _environment(self) -> dict[str, str]:
        """The environment of containerd: ``iptables`` is the one that works."""
        masquerade = self.plan.masquerade
        if masquerade in ("", "iptables"):
            return dict(self.environment)
        links = self.state / "bin"
        links.mkdir(exist_ok=True)
        link = links / "iptables"
        link.unlink(missing_ok=True)
        link.symlink_to(self.programs[masquerade])
        return {**self.environment, "PATH": f"{links}:{self.environment['PATH']}"}

    def _connect(self, main: int) -> None:
        """Connect the network of a process with that of the login, if that has a route."""
        # a file, because pasta gives up the rights that it needs to open that of a process
        namespace, name = namespaces.NETWORK, runtime.DNS[self.plan.network]
        Path(namespace).touch()
        namespaces.bind_file(Path(f"/proc/{main}/ns/net"), namespace)
        program = self.programs[self.plan.network]
        if self.plan.network is possible.NetworkKind.PASTA:
            line = [program, "--quiet", "--config-net", "--no-map-gw", "--no-netns-quit"]
            line += ["-t", "none", "-u", "none", "-T", "none", "-U", "none"]
            line += ["--dns-forward", name, "--netns", namespace]
        else:
            line = [program, "--configure", "--mtu=65520", "--disable-host-loopback"]
            line += ["--ready-fd", namespaces.READY, "--netns-type=path", namespace, "eth0"]
        try:
            namespaces.connect_network(line, self.environment)
        except LaunchError as error:
            text = "pods reach only each other; start again when this machine has a network"
            print(f"{text} ({error})", file=sys.stderr, flush=True)
            return
        resolvers = self.state / "resolv.conf"
        resolvers.write_text(f"nameserver {name}\n")
        namespaces.bind_file(resolvers, "/etc/resolv.conf")


def applets(busybox: str) -> list[str]:
    """The names of a busybox's applets."""
    done = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def main(arguments: Sequence[str]) -> int:
    """``kubeletpy down``: end the node of ``kubeletpy up --rootless`` and remove all of it."""
    made = argparse.ArgumentParser(
        prog="kubeletpy down", description="Remove the node of `kubeletpy up --rootless`."
    )
    directories = machine.default_directories(os.environ)
    made.add_argument("--state-dir", type=Path, default=directories.state)
    state: Path = made.parse_args(arguments).state_dir.absolute()
    if not state.exists():
        print(f"nothing to remove: there is no node in {state} (--state-dir)")
        return 0
    _stop(state)
    environment = machine.environment_of(directories.cache, os.environ)
    facts = machine.read_facts(state, environment, machine.find_programs(environment))
    if not facts.refused:
        with suppress(LaunchError):
            namespaces.run(possible.make_plan(facts).ids, None, lambda: _remove(state))
    _remove(state)
    if state.exists():
        return run.fail(f"{state} can't be removed: see `find {state} -not -user {facts.user}`")
    print("all removed")
    return 0


def _remove(state: Path) -> int:
    shutil.rmtree(state, ignore_errors=True)
    return 0


def _stop(state: Path) -> None:
    """End the process that holds the lock: SIGTERM, and SIGKILL if it does not exit."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not (owner := up.running_pid(state)):
            return
        with suppress(ProcessLookupError):
            os.kill(int(owner), number)
        deadline = time.monotonic() + _STOP_S
        while up.running_pid(state) == owner and time.monotonic() < deadline:
            time.sleep(0.05)
