"""``kubeletpy preflight``: its output and its exit code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kubeletpy.cli.preflight import main

CONFIG = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failSwapOn: false
failCgroupV1: false
iptablesDropBit: 3
"""


def flags(directory: Path, text: str = CONFIG) -> list[str]:
    file = directory / "config.yaml"
    file.write_text(text)
    return ["--only-flags", "--", f"--config={file}", f"--root-dir={directory}"]


@pytest.fixture(autouse=True)
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(flags(tmp_path))
    stated = capsys.readouterr().out
    assert "kubelet: flags after --" in stated
    assert "differs   iptablesDropBit: 3: the network of pods is the runtime's" in stated


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["-o", "json", *flags(tmp_path)])
    stated = json.loads(capsys.readouterr().out)
    assert stated["kubelet"]["source"] == "flags after --"
    assert "iptablesDropBit" in [each["subject"] for each in stated["findings"]]


def test_settings_that_block_are_not_safe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["-o", "json", *flags(tmp_path, CONFIG + "maxPods: -3\n")])
    stated = json.loads(capsys.readouterr().out)
    assert (code, stated["safe"]) == (1, False)


def test_only_root_may(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(flags(tmp_path)) == 1
    assert "run it as root" in capsys.readouterr().err
