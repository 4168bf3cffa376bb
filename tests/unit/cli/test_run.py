"""``kubeletpy run`` with a test double for the agent: errors, signals, exit codes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kubeletpy import config
from kubeletpy.cli import process, run
from kubeletpy.config.version_choice import NoVersion, ServerVersion
from kubeletpy.kubeapi.kubeconfig import KubeconfigError

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(process, "cgroup_version", lambda: 2)
    monkeypatch.setattr(process, "swap_on", lambda: False)
    (tmp_path / "config.yaml").write_text(HEAD + "maxPods: 7\n")
    (tmp_path / "kubeconfig").write_text("")
    return [f"--config={tmp_path}/config.yaml", f"--kubeconfig={tmp_path}/kubeconfig"]


async def never(_loaded: config.LoadedConfig) -> None:
    raise AssertionError("must not start")


def test_the_agent_gets_settings_and_flags(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[config.LoadedConfig] = []
    set_up: list[int] = []
    monkeypatch.setattr("kubeletpy.cli.run.keep_little_freed_memory", lambda: set_up.append(1))

    async def agent(loaded: config.LoadedConfig) -> None:
        assert set_up == [1]
        seen.append(loaded)

    assert run.main([*files, "--hostname-override=node"], agent) == 0
    (loaded,) = seen
    assert (loaded.settings.max_pods, loaded.node.hostname_override) == (7, "node")


def test_the_effective_configuration_is_logged_without_secrets(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "https://user:hunter2@host.example:8443/pods?token=hunter2"
    secret = f"staticPodURL: {url}\nstaticPodURLHeader: {{Authorization: [hunter2]}}\n"
    (tmp_path / "config.yaml").write_text(f"{HEAD}maxPods: 7\n{secret}")

    async def agent(loaded: config.LoadedConfig) -> None:
        assert loaded.settings.static_pod_url == url

    assert run.main(files, agent) == 0
    logged = capsys.readouterr().err
    assert "effective KubeletConfiguration" in logged
    for reported in ("maxPods", "https://<masked>@host.example:8443/pods?<masked>", "podPidsLimit"):
        assert reported in logged
    assert "hunter2" not in logged


def test_a_command_for_people_does_not_log_the_configuration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def agent(loaded: config.LoadedConfig) -> None:
        assert loaded.settings.max_pods == 110

    assert run.run(config.load(HEAD), agent, log_configuration=False) == 0
    assert "KubeletConfiguration" not in capsys.readouterr().err


def test_the_root_directory_is_absolute_wherever_the_agent_was_started(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    async def agent(loaded: config.LoadedConfig) -> None:
        seen.append(loaded.node.root_dir)

    monkeypatch.chdir(tmp_path)
    assert run.main([*files, "--root-dir=here/kubelet"], agent) == 0
    assert seen == [f"{tmp_path}/here/kubelet"]


@pytest.mark.parametrize("endpoint", ["foo", "tcp://1.2.3.4:5", "unix://x"])
def test_an_endpoint_that_is_not_a_socket(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], endpoint: str
) -> None:
    flags = [f"--root-dir={tmp_path}/kubelet", f"--container-runtime-endpoint={endpoint}"]
    assert run.main([*files, *flags]) == 1
    stated = capsys.readouterr().err
    assert f"kubeletpy: container runtime endpoint {endpoint!r}" in stated
    assert "Traceback" not in stated


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_agent(files: list[str], which: signal.Signals) -> None:
    cleaned = []

    async def agent(_loaded: config.LoadedConfig) -> None:
        try:
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), which)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    assert run.main(files, agent) == 0
    assert cleaned == [True]


def test_warnings_are_logged(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    async def agent(_loaded: config.LoadedConfig) -> None:
        pass

    assert run.main([*files, "--max-pods=5"], agent) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line[0] for line in lines if '] "flag --max-pods is deprecated' in line] == ["W"]


def test_every_problem_is_printed_without_a_traceback(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main([*files, "--port=0", "--max-pods=-1"], never) == 1
    err = capsys.readouterr().err
    assert err == (
        "kubeletpy: 2 problems in the configuration:\n"
        "  --port: port is 0: must be from 1 to 65535\n"
        "  --max-pods: maxPods is -1: must be at least 0\n"
        "  in the documentation: reference/errors.md#port #maxpods\n"
    )


def test_a_missing_kubeconfig_names_its_flag(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main([files[0], "--kubeconfig=/no/such"], never) == 1
    assert "--kubeconfig is /no/such: no such file\n" in capsys.readouterr().err


def test_the_machine_must_fit(
    files: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "cgroup_version", lambda: 1)
    assert run.main(files, never) == 1
    assert "failCgroupV1 is true: this machine uses cgroup v1" in capsys.readouterr().err


def test_problems_of_the_machine_hide_no_other_problem(
    files: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "cgroup_version", lambda: 1)
    (tmp_path / "config.yaml").write_text(HEAD + "maxPods: -5\nsingleProcessOOMKill: false\n")
    assert run.main([files[0], "--kubeconfig=/no/such"], never) == 1
    stated = capsys.readouterr().err
    assert "4 problems in the configuration" in stated
    for each in (
        "maxPods is -5: must be at least 0",
        "failCgroupV1 is true: this machine uses cgroup v1",
        "singleProcessOOMKill is false: must not be false on cgroup v1",
        "--kubeconfig is /no/such: no such file",
    ):
        assert each in stated


def test_a_field_that_could_not_be_read_is_one_problem(
    files: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "cgroup_version", lambda: 1)
    (tmp_path / "config.yaml").write_text(HEAD + "failCgroupV1: perhaps\n")
    assert run.main(files, never) == 1
    stated = capsys.readouterr().err
    assert "1 problem in the configuration" in stated
    assert 'failCgroupV1 is "perhaps"' in stated


def test_kernel_settings_are_refused_by_name(
    files: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "wrong_kernel_settings", lambda: "vm.x is 0, must be 1")
    ended: list[bool] = []

    async def agent(_loaded: config.LoadedConfig) -> None:
        ended.append(True)

    assert run.main(files, agent) == 0
    assert run.main([*files, "--protect-kernel-defaults"], agent) == 1
    assert "protectKernelDefaults is true: vm.x is 0, must be 1" in capsys.readouterr().err
    assert ended == [True]


def test_which_kernel_settings_are_wrong(tmp_path: Path) -> None:
    assert "kernel.panic is not readable, must be 10" in process.wrong_kernel_settings(tmp_path)


GATE_OF_1_36 = HEAD + "featureGates: {SidecarContainers: true}\n"


@pytest.mark.parametrize(
    ("answer", "flags", "version"),
    [
        (ServerVersion(1, 36, "v1.36.3"), [], "1.36"),
        (ServerVersion(1, 37, "v1.37.2"), [], None),
        (NoVersion("connection refused"), [], None),
        (ServerVersion(1, 36, "v1.36.3"), ["--kubernetes-version=1.37"], None),
    ],
)
def test_a_configuration_may_be_valid_for_the_servers_version_only(  # noqa: PLR0917 - a table
    files: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: ServerVersion | NoVersion,
    flags: list[str],
    version: str | None,
) -> None:
    seen: list[str] = []

    async def query(path: str) -> ServerVersion | NoVersion:
        assert path == f"{tmp_path}/kubeconfig"
        return answer

    async def agent(loaded: config.LoadedConfig) -> None:
        seen.append(str(loaded.settings.feature_gates.version))

    monkeypatch.setattr("kubeletpy.agent.launch.runtime.query_kubeconfig_version", query)
    (tmp_path / "config.yaml").write_text(GATE_OF_1_36)
    root = f"--root-dir={tmp_path}"
    assert run.main([*files, root, *flags], agent) == (0 if version else 1)
    assert seen == ([version] if version else [])
    assert ("does not exist in Kubernetes 1.37" in capsys.readouterr().err) is (version is None)


def test_errors_that_a_user_can_fix_have_no_traceback(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    async def agent(_loaded: config.LoadedConfig) -> None:
        raise KubeconfigError("kubeconfig /x: no current-context")

    assert run.main(files, agent) == 1
    reported = capsys.readouterr().err
    assert reported.endswith("\nkubeletpy: kubeconfig /x: no current-context\n")
    assert "Traceback" not in reported


def test_a_crash_is_logged_with_its_traceback(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    async def agent(_loaded: config.LoadedConfig) -> None:
        raise RuntimeError("boom")

    assert run.main(files, agent) == 1
    err = capsys.readouterr().err
    assert "run.py:" in err and '] "the agent ended"' in err
    assert "RuntimeError: boom" in err


def test_a_cancelled_agent_is_no_clean_stop(files: list[str]) -> None:
    async def agent(_loaded: config.LoadedConfig) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run.main(files, agent)


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["-h"], never) == 0
    out = capsys.readouterr().out
    assert "--max-pods VALUE" in out
    assert "sets maxPods (deprecated)" in out


def test_machine_facts(tmp_path: Path) -> None:
    assert process.cgroup_version(tmp_path) == 1
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    assert process.cgroup_version(tmp_path) == 2
    swaps = tmp_path / "swaps"
    assert not process.swap_on(swaps)
    swaps.write_text("Filename Type\n")
    assert not process.swap_on(swaps)
    swaps.write_text("Filename Type\n/dev/sda2 partition\n")
    assert process.swap_on(swaps)
    online = tmp_path / "online"
    assert process.online_cpus(online) is None
    online.write_text("0-2,5\n")
    assert process.online_cpus(online) == frozenset({0, 1, 2, 5})


_IMPORT = """
import sys
from importlib import import_module
from kubeletpy.cli.process import skip_package_imports

skip_package_imports()
import_module("kubeletpy.server.answers")
assert "aiohttp.client" not in sys.modules
for name in sys.argv[1:]:
    import_module(name)
assert "prometheus_client.exposition" not in sys.modules
"""


def test_modules_need_no_import_of_the_packages_that_are_skipped() -> None:
    package = Path(process.__file__).parents[1]
    sources = {path: path.read_text() for path in package.rglob("*.py")}
    users = [
        ".".join(path.relative_to(package.parent).with_suffix("").parts)
        for path, text in sources.items()
        if any(f" {name}" in text for name in process.PACKAGES)
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _IMPORT, *users]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
