"""`venv.sh` shows the progress of an installation in plain lines, and the end of a failed one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from shlex import quote

VENV = Path(__file__).parents[3] / "tools" / "env" / "venv.sh"
PIP = r"""pip() {
    echo "Obtaining file:///checkout"
    echo "  Installing build dependencies: started"
    echo "Collecting aiohttp>=3"
    echo "  noise"
    echo "Installing collected packages: $(printf 'x%.0s' {1..500})"
    return "$1"
}"""


def run_showing(log: Path, code: int) -> subprocess.CompletedProcess[str]:
    script = (
        f'set -euo pipefail; source "{VENV}"; {PIP}\nshowing Title "{log}" pip {code}; echo ready'
    )
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)


def test_each_step_is_a_line_of_its_own_when_output_is_no_terminal(tmp_path: Path) -> None:
    done = run_showing(tmp_path / "log", 0)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    assert lines[:3] == [
        "Obtaining file:///checkout",
        "Installing build dependencies: started",
        "Collecting aiohttp>=3",
    ]
    assert lines[3].startswith("Installing collected packages: xxx")
    assert len(lines[3]) < 100
    assert lines[4:] == ["ready"]
    assert "noise" in (tmp_path / "log").read_text()


def test_a_terminal_has_one_line_with_the_step_of_the_moment(tmp_path: Path) -> None:
    inner = f"source {VENV}; {PIP}\nshowing Title {tmp_path}/log pip 0; echo ready"
    command = ["script", "--quiet", "--return", "--command", f"bash -c {quote(inner)}", "/dev/null"]
    shown = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    states = shown.replace("\033[K", "").removesuffix("\r\n").split("\r")
    assert states[1] == "Title … Obtaining file:///checkout"
    assert states[-1] == "Title … ready"
    assert "\n" not in "".join(states)


def test_a_failure_shows_the_end_of_the_log(tmp_path: Path) -> None:
    done = run_showing(tmp_path / "log", 3)
    assert done.returncode != 0
    assert "ready" not in done.stdout
    assert "noise" in done.stderr
