"""The page of reasons, settings and flags has an anchor for each that this agent may show."""

from __future__ import annotations

import re

from markdown import Markdown

from kubeletpy.config import ConfigError, Problem
from kubeletpy.config.fields import FIELDS
from kubeletpy.config.flags import FLAGS
from kubeletpy.kubeapi.events.reasons import AdmissionReason, Reason
from tools.gen_errors import OUT


def anchors() -> list[str]:
    page = Markdown(extensions=["toc"])
    page.convert(OUT.read_text())
    parts = page.toc_tokens[0]["children"]
    return [each["id"] for part in parts for each in part["children"]]


def test_each_reason_and_each_setting_has_one_anchor() -> None:
    found = anchors()
    assert not [each for each in found if each[-2] == "_"], "a second heading of a name"
    reasons = {str(each).lower() for each in (*Reason, *AdmissionReason)}
    assert reasons - set(found) == set()


def test_a_refused_setting_or_flag_names_its_anchor() -> None:
    found = set(anchors())
    refused = [Problem(each, "", "") for each in (*FIELDS, "kind", "providers[0].name")]
    refused += [Problem(f"--{each}", "", "") for each in FLAGS]
    for each in refused:
        (named,) = re.findall(
            r"documentation: reference/errors\.md#(\S+)$", str(ConfigError([each]))
        )
        assert named in found, each
