"""One parser of the complete command line ``kubeletpy``, for completions and manual pages.

The program itself never has it: a command's parser is imported only to run that command.
"""

from __future__ import annotations

import argparse
import importlib

from kubeletpy.cli.main import COMMANDS
from kubeletpy.config.flags import FLAGS


def kubeletpy_parser() -> argparse.ArgumentParser:
    """``kubeletpy`` with all commands and their arguments."""
    made = argparse.ArgumentParser(
        prog="kubeletpy",
        description="A Kubernetes node agent: watches the pods bound to its node, runs them "
        "through a container runtime, and reports their status to the API server.",
    )
    made.add_argument("--version", action="store_true", help="print the version")
    commands = made.add_subparsers(title="commands", metavar="COMMAND")
    for name, (module, summary) in COMMANDS.items():
        of_command = run_parser() if name == "run" else _parser(module)
        commands.add_parser(
            name,
            parents=[of_command],
            add_help=False,
            usage=of_command.usage,
            help=summary,
            description=of_command.description,
        )
    return made


def run_parser() -> argparse.ArgumentParser:
    """``kubeletpy run``, whose flags are a table and not a parser."""
    made = argparse.ArgumentParser(
        usage="kubeletpy run [flags]", description="The flags are the kubelet's."
    )
    for flag in FLAGS.values():
        about = " ".join(
            part
            for part in (
                f"sets {flag.field}" if flag.field else "",
                f"({flag.note})" if flag.note else "",
                f"(until Kubernetes {flag.until})" if flag.until else "",
            )
            if part
        )
        if flag.name == "help":
            continue
        if flag.kind in ("bool", "version"):
            made.add_argument(f"--{flag.name}", action="store_true", help=about)
        else:
            made.add_argument(f"--{flag.name}", metavar="VALUE", help=about)
    return made


def _parser(module: str) -> argparse.ArgumentParser:
    imported = importlib.import_module(module)
    if hasattr(imported, "parser"):
        found: argparse.ArgumentParser = imported.parser()
        return found
    return argparse.ArgumentParser(description=(imported.__doc__ or "").partition("\n")[0])
