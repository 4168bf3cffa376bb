"""Images of tests: commands of this machine, or Python functions, in place of container images.

A container of an image that no test has named runs nothing: it is Running until it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import signal
import subprocess
import termios
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from kubeletpy.base.structs import Component, Struct, field
from kubeletpy.base.tasks import background, run_together, until_one_ends
from kubeletpy.library.control_plane import END_ALL
from kubeletpy.remote.errors import InvalidArgument, Unimplemented
from kubeletpy.remote.simple import KILLED, Container, Sandbox, SimpleRuntime, log_line
from kubeletpy.remote.streams import ProcessStreams, StreamOutput

log = logging.getLogger(__name__)

MOST_LINES = 1000
"""Lines of a container that wait for an attached client."""
BLOCK = 64 << 10
"""Bytes of a process or connection that are read at once, and the longest line of a log."""
OUTPUT_ENDS_S = 0.2
"""Seconds from the end of a process until others that hold its output are killed."""
_CONTAINER = "KUBELETPY_CONTAINER"


Exec = Callable[[Sequence[str], ProcessStreams], Awaitable[int]]
"""Runs a command for a client with these streams, on the agent's event loop."""


class Running(Component):
    """One run of a container, as the function of its image gets it.

    Attributes:
        name: the container's name.
        args: its command and args.
        env: its environment.
        pod: the pod's name; ``namespace``: its namespace.
        stopped: set when the container is to end; a function that waits checks it.
        exec: None, or what the function sets: it runs the commands of probes, hooks and ``kubectl
            exec``, and returns their exit code.
    """

    container: Container

    def __post_init__(self) -> None:
        config = self.container.config
        about = self.container.sandbox.config.metadata
        self.name = self.container.name
        self.pod, self.namespace = about.name, about.namespace
        self.args = (*config.command, *config.args)
        self.env = {each.key: os.fsdecode(each.value) for each in config.envs}
        self.stopped = threading.Event()
        self.exec: Exec | None = None
        self._loop = asyncio.get_running_loop()
        self._attached: set[asyncio.Queue[tuple[bytes, str]]] = set()

    def path(self, mounted: str) -> Path:
        """Where a file is that the container sees below one of its mounts.

        Raises:
            FileNotFoundError: no volume is mounted there.
        """
        wanted = Path(mounted)
        for mount in sorted(
            self.container.config.mounts, key=lambda each: len(each.container_path), reverse=True
        ):
            with contextlib.suppress(ValueError):
                return Path(mount.host_path, wanted.relative_to(mount.container_path))
        raise FileNotFoundError(f"container {self.name} has no volume at {mounted}")

    def print(self, *values: object) -> None:
        """Write a line to the container's log."""
        self.write(" ".join(map(str, values)).encode() + b"\n")

    def write(self, line: bytes, stream: str = "stdout") -> None:
        """Write a line, with its end, to the container's log."""
        with self.container.log_path.open("ab") as file:  # each time: the agent rotates it
            file.write(log_line(line, stream))
        if self._attached:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._pass_on, line, stream)

    def _pass_on(self, line: bytes, stream: str) -> None:
        for each in self._attached:
            with contextlib.suppress(asyncio.QueueFull):
                each.put_nowait((line, stream))

    async def attach(self, client: ProcessStreams) -> None:
        """Write the lines from now on for a client; one that is too slow does not get all."""
        lines: asyncio.Queue[tuple[bytes, str]] = asyncio.Queue(MOST_LINES)
        self._attached.add(lines)
        try:
            while True:
                await _show(client, *await lines.get())
        finally:
            self._attached.discard(lines)
            while not lines.empty():  # the container has ended after these
                await _show(client, *lines.get_nowait())


Function = Callable[[Running], Any]
"""The work of a container, async or not; returns its exit code (None is 0) or raises (1)."""
Image = Sequence[str] | Function
"""A command to which the container's own is appended, or a function."""


class Images(dict[str, Image]):
    """The images by name: with a tag, or without one for all tags.

    Example: ``images["busybox"] = ()`` runs commands of this machine, and
    ``images["worker:1"] = work`` calls a function.
    """

    def find(self, name: str) -> Image | None:
        """The image of that name; None: no test has named it."""
        plain = name.partition("@")[0]
        untagged, _, tag = plain.rpartition(":")
        return self.get(plain, self.get(untagged if untagged and "/" not in tag else plain))


class _Run(Struct, eq=False):
    """How a container runs: by a process, by the task of a function, or not at all."""

    running: Running
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    process: asyncio.subprocess.Process | None = None
    output: asyncio.StreamReader | None = None
    function: asyncio.Task[int] | None = None


class ImageRuntime(SimpleRuntime):
    """Runs the containers of tests, as a plain user and without isolation."""

    name = "images"

    def __init__(self, images: Images, environment: dict[str, str]) -> None:
        """``environment``: of all processes, besides this program's and their containers'."""
        super().__init__()
        self._images, self._environment = images, environment
        self._runs: dict[str, _Run] = {}

    async def launch(self, container: Container) -> None:
        """Start a process or a function, or nothing."""
        image = self._images.find(_image_name(container))
        run = _Run(Running(container))
        if callable(image):
            run.function = asyncio.create_task(_call(image, run))
        elif image is not None:
            command = (*image, *run.running.args)
            stdin = subprocess.PIPE if container.config.stdin else subprocess.DEVNULL
            run.process, run.output = await _start_logged(command, self._env_of(run.running), stdin)
        self._runs[container.id] = run

    async def result(self, container: Container) -> int:
        """Wait for the end."""
        run = self._runs[container.id]
        if run.process is not None:
            assert run.output is not None
            async with background(_log_lines(run.output, run.running)) as logging_:
                code = _exit_code(await run.process.wait())
                await asyncio.wait((logging_,), timeout=OUTPUT_ENDS_S)
                if not logging_.done():  # as the pid namespace of a container would
                    await _end_all(f"{_CONTAINER}={container.id}")
                await logging_
            return code
        if run.function is not None:
            try:
                return await run.function
            except asyncio.CancelledError:
                return KILLED
        await run.ending.wait()
        return 0

    def send(self, container: Container, signum: int) -> None:
        """Pass the signal to the process, or notify the function; SIGKILL ends its container."""
        run = self._runs.get(container.id)
        if run is None:
            return
        run.running.stopped.set()
        run.ending.set()
        if run.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.process.pid, signum)
        elif run.function is not None and signum == signal.SIGKILL:
            run.function.cancel()

    async def remove_container(self, container_id: str) -> None:
        """Forget a run with its container."""
        await super().remove_container(container_id)
        self._runs.pop(container_id, None)

    async def exec_in(
        self, container: Container, command: Sequence[str], client: ProcessStreams
    ) -> int:
        """Run a command on this machine, or by the function that the container offers."""
        run = self._runs[container.id]
        if run.running.exec is not None:
            return await run.running.exec(command, client)
        if run.process is None:
            why = "only containers that are processes, or set Running.exec, run commands"
            raise Unimplemented("Exec", why)
        if client.tty:
            return await _in_terminal(command, self._env_of(run.running), client)
        process = await _start(
            command, self._env_of(run.running), stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdin is not None and process.stdout is not None
        assert process.stderr is not None
        try:
            async with background(_feed(client.stdin, process.stdin)):
                await run_together(
                    _copy(process.stdout, client.stdout), _copy(process.stderr, client.stderr)
                )
                return _exit_code(await process.wait())
        finally:
            _kill(process)

    def _env_of(self, running: Running) -> Mapping[str, str]:
        own = {_CONTAINER: running.container.id}
        return os.environ | running.env | self._environment | own

    async def attach_to(self, container: Container, client: ProcessStreams) -> int:
        """Show what the container writes; the input of a process with ``stdin`` is the client's."""
        run = self._runs[container.id]
        stdin = run.process.stdin if run.process is not None else None
        async with background(run.running.attach(client)) as showing:
            if stdin is not None:
                await _feed(client.stdin, stdin, last=container.config.stdin_once)
            await showing
        return 0

    async def forward_to(
        self, sandbox: Sandbox, port: int, reader: asyncio.StreamReader, writer: StreamOutput
    ) -> None:
        """Connect to the port of this machine, at which a container listens."""
        answers, requests = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with background(_feed(reader, requests)):
                await _copy(answers, writer)
        finally:
            requests.close()


def _image_name(container: Container) -> str:
    image = container.config.image
    return image.user_specified_image or image.image


def _exit_code(returned: int) -> int:
    """The exit code of a process, as a shell reports it where a signal has ended it."""
    return returned if returned >= 0 else 128 - returned


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


class _TerminalOutput(asyncio.StreamReaderProtocol):
    """Reads a terminal, which ends with an error once no process has it open."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(None)


async def _in_terminal(
    command: Sequence[str], env: Mapping[str, str], client: ProcessStreams
) -> int:
    """The exit code of a command in a terminal of its own, which has the size of the client's."""
    loop, output = asyncio.get_running_loop(), asyncio.StreamReader()
    ours, its = os.openpty()
    try:
        process = await _start(command, env, terminal=its)
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(its)
    with os.fdopen(ours, "rb", 0) as reading, os.fdopen(os.dup(ours), "wb", 0) as writing:
        source, _ = await loop.connect_read_pipe(lambda: _TerminalOutput(output), reading)
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        sink, _ = await loop.connect_write_pipe(lambda: protocol, writing)

        async def resize() -> None:
            async for columns, rows in client.resized():
                termios.tcsetwinsize(ours, (rows, columns))

        try:
            stdin = asyncio.StreamWriter(sink, protocol, None, loop)
            async with background(_feed(client.stdin, stdin)), background(resize()):
                await _copy(output, client.stdout)
                return _exit_code(await process.wait())
        finally:
            _kill(process)
            source.close()
            sink.abort()


async def _show(client: ProcessStreams, line: bytes, stream: str) -> None:
    await (client.stderr if stream == "stderr" else client.stdout).write(line)


async def _copy(reader: asyncio.StreamReader, output: StreamOutput) -> None:
    """Write for a client what a process or connection sends, to its end."""
    while data := await reader.read(BLOCK):
        await output.write(data)


async def _feed(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, last: bool = True
) -> None:
    """Pass on what a client sends, to its end or that of the process or connection.

    ``last``: no other client follows, so that the input ends with it.
    """
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(BLOCK):
            writer.write(data)
            await writer.drain()
        if last:
            writer.write_eof()


async def _start_logged(
    command: Sequence[str], env: Mapping[str, str], stdin: int
) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader]:
    """Start a process, with the output of it and its children.

    The pipe is not the process's own: asyncio would report its end only after that of the pipe.
    """
    ours, its = os.pipe()
    output = asyncio.StreamReader(BLOCK)
    with os.fdopen(its, "wb"), contextlib.ExitStack() as stack:
        reading = stack.enter_context(os.fdopen(ours, "rb", 0))
        process = await _start(command, env, stdin=stdin, stdout=its)
        protocol = asyncio.StreamReaderProtocol(output)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, reading)
        stack.pop_all()
    return process, output


async def _log_lines(output: asyncio.StreamReader, running: Running) -> None:
    """Log what a process writes; a line that is too long becomes several."""
    while True:
        try:
            line = await output.readuntil()
        except asyncio.LimitOverrunError as error:
            line = await output.readexactly(error.consumed)
        except asyncio.IncompleteReadError as error:
            line = error.partial
        if not line:
            return
        running.write(line if line.endswith(b"\n") else line + b"\n")


async def _end_all(variable: str) -> None:
    """Kill the processes that have a variable ("NAME=value") in their environment."""
    shell = await asyncio.create_subprocess_exec("sh", "-c", END_ALL, "sh", variable)
    await shell.wait()


async def _start(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    stdin: int = subprocess.DEVNULL,
    stderr: int = subprocess.STDOUT,
    stdout: int = subprocess.PIPE,
    terminal: int | None = None,
) -> asyncio.subprocess.Process:
    if not command:
        raise InvalidArgument("StartContainer", "neither the image nor the pod has a command")
    if terminal is not None:
        command = ("setsid", "--ctty", *command)
        stdin = stdout = stderr = terminal
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=terminal is None,
        )
    except OSError as error:
        raise InvalidArgument("StartContainer", f"{command[0]}: {error.strerror}") from error


async def _call(function: Function, run: _Run) -> int:
    """The exit code of a function; one that is not async runs on a thread."""
    running = run.running
    ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    try:
        if inspect.iscoroutinefunction(function):
            return await _until_ended(function(running), run.ending)
        _on_thread(function, running, ended)
        return int(await ended or 0)
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - of the test's own function
        for line in "".join(traceback.format_exception(error)).splitlines(keepends=True):
            running.write(line.encode(), "stderr")
        return 1


async def _until_ended(work: Coroutine[Any, Any, int | None], ending: asyncio.Event) -> int:
    """The result of a coroutine, which is canceled when its container is to end."""
    async with background(work) as task, background(ending.wait()) as stopping:
        await until_one_ends(task, stopping)
        return int(task.result() or 0) if task.done() else 128 + signal.SIGTERM


def _on_thread(function: Function, running: Running, ended: asyncio.Future[Any]) -> None:
    """Call the function on a thread of its own, which does not delay the end of the program."""
    loop = asyncio.get_running_loop()

    def settle(set_result: Callable[[Any], None], value: Any) -> None:
        if not ended.done():
            set_result(value)

    def work() -> None:
        outcome: tuple[Callable[[Any], None], Any]
        try:
            outcome = ended.set_result, function(running)
        except BaseException as error:  # noqa: BLE001 - whatever ends it ends its container
            outcome = ended.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=work, name=f"container {running.name}", daemon=True).start()
