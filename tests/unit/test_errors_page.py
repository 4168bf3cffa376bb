"""The page of reasons and settings has an anchor for each that this agent may show."""

from __future__ import annotations

from markdown import Markdown

from kubeletpy.config.fields import FIELDS
from kubeletpy.kubeapi.events.reasons import AdmissionReason, Reason
from tools.gen_errors import OUT


def test_each_reason_and_each_setting_has_one_anchor() -> None:
    page = Markdown(extensions=["toc"])
    page.convert(OUT.read_text())
    parts = page.toc_tokens[0]["children"]
    anchors = [each["id"] for part in parts for each in part["children"]]
    assert not [each for each in anchors if each[-2] == "_"], "a second heading of a name"
    reasons = {str(each).lower() for each in (*Reason, *AdmissionReason)}
    settings = {path.lower().replace(".", "") for path in FIELDS}
    assert (reasons | settings) - set(anchors) == set()
