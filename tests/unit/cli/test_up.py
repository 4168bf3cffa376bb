"""`kubeletpy up` started with errors reports the remedy, without a traceback."""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path

import pytest

from kubeletpy.agent.launch import LaunchError
from kubeletpy.base.structs import replace
from kubeletpy.cli import ports, up
from kubeletpy.cli.ports import UP_PORTS, UpPort
from kubeletpy.cli.up import NOT_INSTALLED, lines_to_copy, load, main, parser
from kubeletpy.server.health import is_free, next_free_port


@pytest.mark.parametrize(
    ("content", "parts"),
    [("{{{", "YAML or JSON"), ("- a", "KubeletConfiguration"), ("kind: Pod", "Pod")],
)
def test_bad_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, parts: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(content)
    assert main(["--state-dir", str(tmp_path / "s"), "--config", str(file)]) == 1
    stated = capsys.readouterr().err
    assert stated.startswith("kubeletpy: ")
    assert parts in stated


@pytest.mark.parametrize(
    ("more", "names"),
    [
        (None, []),
        ("", []),
        ("contentType: application/cbor\n", ["contentType"]),
        (
            "kernelMemcgNotification: false\nhairpinMode: none\n",
            ["kernelMemcgNotification", "hairpinMode"],
        ),
    ],
)
def test_settings_without_effect_are_named(
    tmp_path: Path, more: str | None, names: list[str]
) -> None:
    arguments = ["--state-dir", str(tmp_path)]
    if more is not None:
        file = tmp_path / "config.yaml"
        head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        file.write_text(head + more)
        arguments += ["--config", str(file)]
    loaded = load(parser().parse_args(arguments))
    assert [notice.name.split()[0] for notice in loaded.notices] == names
    assert len(loaded.warnings) == len(names)
    assert all(name in stated for name, stated in zip(names, loaded.warnings, strict=True))


def test_the_node_states_that_it_has_no_cluster_dns(tmp_path: Path) -> None:
    loaded = load(parser().parse_args(["--state-dir", str(tmp_path)]))
    assert loaded.node.no_cluster_dns


@pytest.mark.parametrize("text", ["99999", "-1", "https"])
def test_an_invalid_port(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit):
        main([f"--port={text}"])
    assert f"{text} is not a number from 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--config", "/no/such/file"], "--config is /no/such/file: cannot be read: No such file"),
        (["--node-name", "my_host"], '--node-name is "my_host": must be a node\'s name'),
        (["--node-name", ""], "--node-name: must not be empty"),
        (["--config", ""], "--config: cannot be read"),
        (
            ["--container-runtime-endpoint", "tcp://x:1"],
            "--container-runtime-endpoint is tcp://x:1",
        ),
    ],
)
def test_invalid_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], parts: str
) -> None:
    assert main(["--state-dir", str(tmp_path / "s"), *arguments]) == 1
    assert parts in capsys.readouterr().err


def test_without_the_embedded_api(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "kubeletpy_up", None)  # as if it were not installed
    assert main(["--state-dir", str(tmp_path / "s")]) == 1
    stated = capsys.readouterr().err
    assert stated == f"kubeletpy: {NOT_INSTALLED}\n"
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_port_is_taken_if_one_family_has_it(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as taken:
        port = taken.getsockname()[1]
        assert not is_free("0.0.0.0", port)
        assert next_free_port("0.0.0.0", port) > port


def test_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--state-dir", str(tmp_path), "--port", str(port)]) == 1
    stated = capsys.readouterr().err
    assert f"--port is {port}: is taken; `ss -ltnp 'sport = :{port}'` shows the program" in stated
    assert "or start with --port " in stated
    assert "Traceback" not in stated


def listener(address: str = "127.0.0.1") -> tuple[socket.socket, int]:
    made = socket.create_server((address, 0))
    return made, made.getsockname()[1]


@pytest.mark.parametrize("which", UP_PORTS, ids=lambda each: each.option)
def test_a_usual_port_that_is_taken_is_replaced_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: UpPort
) -> None:
    taken, port = listener()
    monkeypatch.setattr(ports, "UP_PORTS", [replace(each, usual=port) for each in (which,)])
    lines: list[str] = []
    supplied = parser().parse_args(["--state-dir", str(tmp_path)])
    with taken:
        chosen, problems = ports.choose_ports(vars(supplied), {}, lines.append)
    ((_, number),) = chosen.items()
    assert isinstance(number, int)
    assert number > port
    assert lines == [f"port {port} is taken: {number} is for {which.use} ({which.option})"]
    assert not problems


@pytest.mark.parametrize(
    ("arguments", "document", "source"),
    [
        (["--port", "{}"], {}, "--port"),
        (["--kubelet-port", "{}"], {}, "--kubelet-port"),
        (["--healthz-port", "{}"], {}, "--healthz-port"),
        (["--healthz-port", "{}"], {"healthzPort": 0}, "--healthz-port"),
        ([], {"port": "{}"}, "port"),
        ([], {"healthzPort": "{}"}, "healthzPort"),
    ],
)
def test_a_port_that_somebody_named_is_never_replaced(
    tmp_path: Path, arguments: list[str], document: dict[str, object], source: str
) -> None:
    taken, port = listener()
    supplied = parser().parse_args([each.format(port) for each in arguments])
    named = {name: port if value == "{}" else value for name, value in document.items()}
    with taken:
        _, problems = ports.choose_ports(vars(supplied), named, lambda line: None)
    (problem,) = problems
    assert (problem.field, problem.value) == (source, str(port))
    assert re.search(r"or start with --(port|kubelet-port|healthz-port) \d+$", problem.allowed)


def test_ports_named_by_options_reach_the_node(tmp_path: Path) -> None:
    one, two = (next_free_port("127.0.0.1", number) for number in (20_000, 30_000))
    arguments = ["--state-dir", str(tmp_path), "--kubelet-port", str(one)]
    settings = load(parser().parse_args([*arguments, "--healthz-port", str(two)])).settings
    assert (settings.port, settings.healthz_port) == (one, two)
    settings = load(parser().parse_args([*arguments, "--healthz-port", "0"])).settings
    assert settings.healthz_port == 0


@pytest.mark.parametrize(
    ("more", "arguments", "address", "connected"),
    [
        ("", [], "127.0.0.1", "127.0.0.1"),
        ("address: ''\n", ["--kubelet-address", ""], "127.0.0.1", "127.0.0.1"),
        ("", ["--kubelet-address", "0.0.0.0"], "0.0.0.0", ""),
        ("address: '::'\n", [], "::", ""),
        ("address: '::'\n", ["--kubelet-address", "::1"], "::1", "::1"),
    ],
)
def test_other_machines_reach_the_node_only_if_somebody_says_so(
    tmp_path: Path, more: str, arguments: list[str], address: str, connected: str
) -> None:
    file = tmp_path / "config.yaml"
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    file.write_text(head + more)
    line = ["--state-dir", str(tmp_path), "--config", str(file), *arguments]
    settings = load(parser().parse_args(line)).settings
    assert settings.address == address
    assert up.host_to_connect(address) == connected


def test_a_second_agent_on_a_state_directory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not up.running_pid(tmp_path)
    with up.lock(tmp_path):
        assert up.running_pid(tmp_path) == str(os.getpid())
        assert main(["--state-dir", str(tmp_path)]) == 1
        assert f"runs already (pid {os.getpid()})" in capsys.readouterr().err
        with pytest.raises(LaunchError, match="runs already"):
            up.lock(tmp_path)
    assert not up.running_pid(tmp_path)


def test_a_file_that_is_not_a_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "api.db").write_text("junk, and enough of it to be no empty database")
    assert main(["--state-dir", str(tmp_path), "--port", "0"]) == 1
    stated = capsys.readouterr().err
    assert "api.db" in stated
    assert "move the file away" in stated
    assert "Traceback" not in stated


def test_a_state_directory_that_cannot_be_created(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["--state-dir", str(tmp_path / "file" / "x"), "--port", "0"]) == 1
    stated = capsys.readouterr().err
    assert "--state-dir" in stated
    assert "Traceback" not in stated


def test_the_lines_to_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "kubeletpy").touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("kubeletpy.cli.up.shutil.which", lambda _name: None)
    sample = Path(__file__).resolve().parents[3] / "deploy" / "sample-pod.yaml"
    assert lines_to_copy(Path("/a b/admin.kubeconfig")) == [
        f"export PATH={tmp_path}:$PATH",
        "export KUBECONFIG='/a b/admin.kubeconfig'",
        f"kubectl apply -f {sample}",
        "kubeletpy view",
    ]


def test_a_command_that_is_on_the_path_needs_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeletpy.cli.up.shutil.which", lambda name: f"/usr/bin/{name}")
    lines = lines_to_copy(Path("/c"))
    assert lines[0] == "export KUBECONFIG=/c"
    assert lines[-1] == "kubeletpy view"


@pytest.mark.parametrize(
    ("flags", "more", "driver"),
    [
        ([], None, "cgroupfs"),
        (["--cgroup-driver", "systemd"], None, "systemd"),
        (["--cgroup-driver", "systemd"], "", "systemd"),
        (["--cgroup-driver", "systemd"], "cgroupDriver: cgroupfs\n", "cgroupfs"),
        (["--cgroup-driver", "cgroupfs"], "cgroupDriver: systemd\n", "systemd"),
    ],
)
def test_the_cgroup_driver_of_a_file_counts_more(
    tmp_path: Path, flags: list[str], more: str | None, driver: str
) -> None:
    arguments = ["--state-dir", str(tmp_path), *flags]
    if more is not None:
        file = tmp_path / "config.yaml"
        head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        file.write_text(head + more)
        arguments += ["--config", str(file)]
    assert load(parser().parse_args(arguments)).settings.cgroup_driver == driver
