"""The form of commit subjects that .gitlint requires."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

SETTINGS = configparser.RawConfigParser()
SETTINGS.read(Path(__file__).parents[2] / ".gitlint")
SUBJECT = re.compile(SETTINGS["title-match-regex"]["regex"])


@pytest.mark.parametrize(
    "subject",
    [
        "status: skip recomposing unchanged pods",
        "config, launch: take the Kubernetes version of the API server",
        "embedded API: check both kinds of subdomains with one function",
        "test.sh: run sim and fuzz at idle priority beside integration",
        "volumes/csi: pass the fsGroup to drivers",
        "remote: process answers in order",
        "probes: ping the container",
        "pods: address a static pod by its name",
        'Reapply "status: fix it"',
        *(f"area: {verb} it" for verb in ("pass", "focus", "discuss", "embed", "seed", "string")),
    ],
)
def test_accepted(subject: str) -> None:
    assert SUBJECT.search(subject)


@pytest.mark.parametrize(
    "subject",
    [
        "What a plan is told as is a Struct",
        "status : fix it",
        "status:fix it",
        "status: ",
        "status: Fix it",
        "status: fixed it",
        "status: fixes it",
        "status: fixing it",
        "status: adds a row",
        "csi: a stale CSINode is recreated",
        "status: no second write",
        "fixup! status: fix it",
    ],
)
def test_refused(subject: str) -> None:
    assert not SUBJECT.search(subject)
