"""Write completions and manual pages: ``python -m tools.release.shell_files DIR``.

Below DIR as below /usr/share: for bash, zsh and fish, ``kubeletpy.1`` and ``kubectl-why.1``. Made
from the commands' parsers, the pages by argparse-manpage, when a release is built.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from argparse_manpage.manpage import Manpage

from kubeletpy.base.version import VERSION
from kubeletpy.cli import completion, why

COMPLETIONS = {
    "bash": "bash-completion/completions/kubeletpy",
    "zsh": "zsh/site-functions/_kubeletpy",
    "fish": "fish/vendor_completions.d/kubeletpy.fish",
}
"""Shell -> its file."""


def manual(parser: argparse.ArgumentParser, summary: str) -> str:
    """A manual page; its date is that of SOURCE_DATE_EPOCH."""
    page = Manpage(parser, format="single-commands-section")
    page.source, page.manual = f"kubeletpy {VERSION}", "kubeletpy"
    page.description = summary
    return str(page)


def files() -> dict[str, str]:
    """Path below the share directory -> content."""
    made = {path: completion.script(shell) for shell, path in COMPLETIONS.items()}
    made["man/man1/kubeletpy.1"] = manual(
        completion.kubeletpy_parser(), "Kubernetes node agent in Python"
    )
    made["man/man1/kubectl-why.1"] = manual(why.parser(), "why a pod is in its state")
    return made


def main() -> int:
    """Write all files; returns the exit code."""
    (directory,) = sys.argv[1:]
    for name, text in files().items():
        path = Path(directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
