"""A real Prometheus that scrapes one endpoint, and promtool (Debian package prometheus)."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tools.env.ports import free_port
from tools.env.process import Daemon, run
from tools.env.waiting import wait_until

PACKAGES = ("prometheus",)


class Prometheus:
    """Scrapes `target` ("127.0.0.1:PORT") at `path` every second, and answers queries."""

    def __init__(self, directory: Path, target: str, path: str = "/metrics") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.target = target
        self.port = free_port()
        self._path = path
        self._daemon = Daemon("prometheus", directory)

    def start(self, config: Path | None = None) -> None:
        """Start it with its own configuration (or `config`) and wait until it is ready."""
        if config is None:
            config = self.directory / "prometheus.yml"
            job = {
                "job_name": "kubelet",
                "metrics_path": self._path,
                "static_configs": [{"targets": [self.target]}],
            }
            interval = {"scrape_interval": "1s", "evaluation_interval": "1s"}
            config.write_text(json.dumps({"global": interval, "scrape_configs": [job]}))
        self._daemon.start(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={self.directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ]
        )
        wait_until(
            lambda: self._get("/-/ready") is not None, "Prometheus", give_up=self._daemon.died
        )

    def remove(self) -> None:
        """End it and remove its data, so there is nothing to wait for."""
        self._daemon.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series an instant query gives, each with "metric" and "value"."""
        answer = self._get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        result: list[dict[str, Any]] = json.loads(answer)["data"]["result"]
        return result

    def wait_for(self, expression: str, timeout: float = 15.0) -> list[dict[str, Any]]:
        """Wait until an instant query has a result, and return it."""
        return wait_until(lambda: self.query(expression), f"`{expression}`", timeout=timeout)

    def wait_scraped(self, timeout: float = 15.0) -> None:
        """Wait until the target was scraped; the error of the last scrape is in the failure."""

        def up() -> bool:
            targets = json.loads(self._get("/api/v1/targets"))["data"]["activeTargets"]
            if targets and targets[0]["health"] == "up":
                return True
            raise OSError(targets[0]["lastError"] if targets else "no target yet")

        wait_until(up, f"a scrape of {self.target}", timeout=timeout)

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            content: bytes = answer.read()
            return content


def check_metrics(exposition: bytes) -> list[str]:
    """Problems that `promtool check metrics` finds in an exposition; empty if there are none."""
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=exposition, capture_output=True, check=False
    )
    return (done.stdout + done.stderr).decode(errors="replace").splitlines()


def check_rules(path: Path) -> None:
    """`promtool check rules`. Raises CommandError."""
    run("promtool", "check", "rules", path)


def run_rule_tests(path: Path) -> None:
    """`promtool test rules`: unit tests of alerts. Raises CommandError with the difference."""
    run("promtool", "test", "rules", path)
