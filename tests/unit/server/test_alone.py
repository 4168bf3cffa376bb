"""Access to the server without an API that could review clients, by configuration."""

from __future__ import annotations

import pytest

from kubeletpy.config import NodeFlags, default_settings, load, parse_flags
from kubeletpy.server.build import Ports
from kubeletpy.server.routes import ServerError
from kubeletpy.server.settings import ServerSettings
from tools.env.ports import free_port

WEBHOOK_OFF = {"webhook": {"enabled": False}}


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({}, "authentication.webhook.enabled.*authorization.mode"),
        ({"authentication": WEBHOOK_OFF}, "authorization.mode Webhook"),
        ({"authorization": {"mode": "AlwaysAllow"}}, "authentication.webhook.enabled"),
    ],
)
def test_a_file_that_requires_reviews_is_refused(fields: dict[str, object], parts: str) -> None:
    with pytest.raises(ServerError, match=parts):
        ServerSettings.from_settings(default_settings(address="127.0.0.1", **fields), NodeFlags())


def test_a_configuration_without_reviews_needs_no_api() -> None:
    alone = {"authentication": WEBHOOK_OFF, "authorization": {"mode": "AlwaysAllow"}}
    settings = default_settings(address="127.0.0.1", port=free_port(), **alone)
    ports = Ports(ServerSettings.from_settings(settings, NodeFlags()))
    assert ports.port == settings.port
    ports.close()


def test_without_a_file_only_certificates_count() -> None:
    alone = load(None).settings
    assert alone.authorization.mode == "AlwaysAllow"
    assert not alone.authentication.webhook.enabled
    assert not alone.authentication.anonymous.enabled
    joined = load(None, (), parse_flags(["--kubeconfig=/x"])).settings
    assert joined.authorization.mode == "Webhook"
    assert joined.authentication.webhook.enabled
    flags = parse_flags(["--authorization-mode=Webhook"])
    assert load(None, (), flags).settings.authorization.mode == "Webhook"
