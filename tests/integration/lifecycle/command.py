"""The explain and timeline commands against a node of a test."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.integration.node.machine import Node


def run(node: Node, *arguments: str, expect: int = 0) -> str:
    """Run ``kubeletpy COMMAND ...``; returns its stdout or, when it should fail, its stderr."""
    command = [sys.executable, "-m", "kubeletpy.cli.main", *arguments]
    command += ["--socket", str(node.root_dir / "explain.sock")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == expect, result.stderr
    return result.stdout if expect == 0 else result.stderr


def command_output(main: Callable[[list[str]], int], node: Node, *arguments: str) -> str:
    """Run a command in this process; returns its output and its errors."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        main([*arguments, "--socket", str(node.root_dir / "explain.sock")])
    return out.getvalue()


def explained(node: Node, namespace: str, name: str) -> Any:
    """``kubeletpy explain -o json`` of a pod; empty when the agent has no such pod."""
    command = [sys.executable, "-m", "kubeletpy.cli.main", "explain", "-n", namespace, name]
    command += ["-o", "json", "--socket", str(node.root_dir / "explain.sock")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return json.loads(result.stdout) if result.returncode == 0 else {}


def until_verdict(node: Node, namespace: str, name: str, *parts: str) -> str:
    """Wait until the first line about a pod has these words in it; the line."""

    def has_words() -> str | None:
        verdict = str(explained(node, namespace, name).get("verdict", ""))
        return verdict if all(word in verdict for word in parts) else None

    found = node.until(has_words, f"a verdict with {parts}", namespace, name)
    return str(found)
