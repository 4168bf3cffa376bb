"""kubectl of several ages, each against a kubeconfig of its own; never installed over another."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.env.debian import unpacked
from tools.env.process import run

_PACKAGES = {
    "old": ("kubernetes-client", "bookworm"),  # v1.20
    "new": ("kubectl", "testing"),  # v1.36
}


@dataclass(frozen=True)
class Kubectl:
    """One kubectl program; `name` is "old", "new" or "installed"."""

    name: str
    program: Path

    def run(self, kubeconfig: Path, *arguments: str | Path, timeout: float = 60.0) -> str:
        """Run it and return its output. Raises CommandError with its output."""
        return run(self.program, *arguments, timeout=timeout, env=self.environment(kubeconfig))

    @contextmanager
    def process(self, kubeconfig: Path, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
        """kubectl as a process with pipes, which ends with the ``with``."""
        with subprocess.Popen(
            [self.program, *arguments],
            env=self.environment(kubeconfig),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def environment(self, kubeconfig: Path) -> dict[str, str]:
        """The environment for running it by hand (a watch, for example); caches beside the file."""
        home = kubeconfig.parent
        return {"KUBECONFIG": str(kubeconfig), "HOME": str(home), "PATH": os.environ["PATH"]}


def kubectl(name: str) -> Kubectl:
    """The kubectl called "old" (v1.20) or "new" (v1.36), fetched once."""
    package, suite = _PACKAGES[name]
    return Kubectl(name, unpacked(package, suite) / "usr" / "bin" / "kubectl")


def installed() -> Kubectl | None:
    """The kubectl of this machine, if there is one."""
    found = shutil.which("kubectl")
    return Kubectl("installed", Path(found)) if found else None
