"""Tables: content of a request, when a certificate is renewed, verdict on a request."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kubeletpy.base.host.pki import Certificate, Names
from kubeletpy.node.certificates import request
from kubeletpy.node.certificates.request import (
    CLIENT_LOST_S,
    CsrOutcome,
    rotation_deadline,
    unsatisfied,
    verdict,
)
from tools.rulebook.tables import rows

NAMES = {row["key"]: row for row in rows("names.csv") if row["kind"] == "identity"}
CONSTANTS = {row["name"]: row["value"] for row in rows("constants.csv") if row["area"] == "certs"}
NODE = Names("system:node:n", ("system:nodes",), ("n",), ("10.0.0.1",))


def test_the_names_are_the_tables() -> None:
    client, serving = NAMES["client cert subject"], NAMES["serving cert subject"]
    common, organization = client["value"].format(nodeName="n").split(" O ")
    assert request.client_names("n") == Names(common.removeprefix("CN "), (organization,))
    assert client["on"] == f"CSR {request.CLIENT_SIGNER}"
    assert serving["on"] == f"CSR {request.SERVING_SIGNER}"
    assert float(CONSTANTS["client exit after expiry"].removesuffix("m")) * 60 == CLIENT_LOST_S


@pytest.mark.parametrize(
    ("chance", "share"), [(0.0, 0.7), (0.5, 0.8), (1.0, 0.9)], ids=["first", "middle", "last"]
)
def test_rotation_point(chance: float, share: float) -> None:
    assert CONSTANTS["rotation point"] == "notBefore + life*(0.7..0.9)"
    certificate = Certificate(NODE, 1000.0, 2000.0)
    assert rotation_deadline(certificate, chance) == pytest.approx(1000 + 1000 * share)


ADDRESSES: list[tuple[str, list[tuple[str, str]], bool, Names | None]] = [
    ("nothing", [], False, None),
    ("no address", [("Hostname", "n")], False, None),
    ("names will do", [("Hostname", "n")], True, Names("", (), ("n",))),
    (
        "all kinds, sorted, once each",
        [
            ("InternalIP", "10.0.0.2"),
            ("InternalIP", "10.0.0.1"),
            ("ExternalIP", "10.0.0.1"),
            ("InternalIP", "FD00:0::1"),
            ("InternalIP", "::ffff:10.0.0.1"),
            ("InternalIP", "fe80::1%eth0"),
            ("Hostname", "n"),
            ("InternalDNS", "n"),
            ("ExternalDNS", "a.example"),
        ],
        False,
        Names("", (), ("a.example", "n"), ("10.0.0.1", "10.0.0.2", "fd00::1")),
    ),
    (
        "a hostname that is an address",
        [("Hostname", "10.0.0.3")],
        False,
        Names("", (), (), ("10.0.0.3",)),
    ),
    ("no sense", [("InternalIP", "nonsense"), ("Other", "10.0.0.1")], False, None),
    ("nothing, though names would do", [("InternalIP", "n"), ("Hostname", "")], True, None),
    (
        "no sense beside an address",
        [("InternalIP", "10.0.0.1"), ("InternalIP", "n"), ("Other", "n"), ("InternalDNS", "")],
        False,
        Names("", (), (), ("10.0.0.1",)),
    ),
]


@pytest.mark.parametrize(
    ("addresses", "dns_only", "desired"),
    [row[1:] for row in ADDRESSES],
    ids=[r[0] for r in ADDRESSES],
)
def test_serving_names(
    addresses: list[tuple[str, str]], dns_only: bool, desired: Names | None
) -> None:
    supplied: Any = [{"type": kind, "address": address} for kind, address in addresses]
    found = request.serving_names("n", supplied, dns_only=dns_only)
    if desired is None:
        assert found is None
        return
    assert found is not None
    assert (found.common_name, found.organizations) == ("system:node:n", ("system:nodes",))
    assert (found.dns_names, found.ip_addresses) == (desired.dns_names, desired.ip_addresses)


def test_the_name_of_a_request_depends_on_its_content() -> None:
    def name(key: bytes = b"key", names: Names = NODE, signer: str = request.CLIENT_SIGNER) -> str:
        return request.request_name("csr-", key, names, signer)

    others = {
        name(b"other"),
        name(names=Names("system:node:m", NODE.organizations, NODE.dns_names, NODE.ip_addresses)),
        name(names=Names(NODE.common_name, NODE.organizations, (), ("n", "10.0.0.1"))),
        name(names=Names(NODE.common_name, (), ("system:nodes", "n"), NODE.ip_addresses)),
        name(signer=request.SERVING_SIGNER),
    }
    assert name() == name()
    assert (name()[:4], len(name())) == ("csr-", 36)
    assert len(others | {name()}) == 6


@pytest.mark.parametrize(
    ("signer", "usages"),
    [
        (request.CLIENT_SIGNER, ["digital signature", "client auth"]),
        (request.SERVING_SIGNER, ["digital signature", "server auth"]),
    ],
)
def test_the_request_object(signer: str, usages: list[str]) -> None:
    made = request.request_object("csr-1", signer, b"PEM")
    assert made["spec"] == {
        "request": base64.b64encode(b"PEM").decode(),
        "signerName": signer,
        "usages": usages,
    }


@pytest.mark.parametrize(
    ("desired", "lacks"),
    [
        (NODE, ""),
        (Names("system:node:n", ("system:nodes",)), ""),
        (Names("system:node:m", ("system:nodes",)), "name"),
        (Names("system:node:n", ("system:nodes", "more")), "organization more"),
        (Names("system:node:n", (), ("n", "m")), "DNS name m"),
        (Names("system:node:n", (), (), ("10.0.0.2",)), "address 10.0.0.2"),
    ],
)
def test_names_missing_from_a_certificate(desired: Names, lacks: str) -> None:
    why = unsatisfied(Certificate(NODE, 0, 1), desired)
    assert (lacks in why) if lacks else why == ""


APPROVED = {"type": "Approved", "status": "True"}
DENIED = {"type": "Denied", "status": "True", "reason": "No", "message": "not you"}
PEM = base64.b64encode(b"certificate").decode()


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (None, CsrOutcome.PENDING),
        ({}, CsrOutcome.PENDING),
        ({"certificate": PEM}, CsrOutcome.PENDING),
        ({"conditions": [APPROVED]}, CsrOutcome.APPROVED),
        ({"conditions": [APPROVED], "certificate": PEM}, CsrOutcome.ISSUED),
        ({"conditions": [APPROVED, {"type": "Other"}], "certificate": PEM}, CsrOutcome.ISSUED),
        ({"conditions": [APPROVED], "certificate": "%"}, CsrOutcome.FAILED),
        ({"conditions": [APPROVED, DENIED], "certificate": PEM}, CsrOutcome.DENIED),
        ({"conditions": [{"type": "Failed", "message": "bad"}]}, CsrOutcome.FAILED),
        ({"conditions": ["nonsense", None]}, CsrOutcome.PENDING),
        ("nonsense", CsrOutcome.PENDING),
    ],
)
def test_verdicts(status: Any, outcome: CsrOutcome) -> None:
    found = verdict({"metadata": {"name": "csr-1"}, "status": status})
    assert found.outcome is outcome
    assert (found.certificate == b"certificate") == (outcome is CsrOutcome.ISSUED)


@pytest.mark.parametrize(
    ("stated", "why"),
    [
        ({"reason": "No", "message": "not you"}, "No: not you"),
        ({"reason": "No"}, "No"),
        ({"message": "not you", "reason": None}, "not you"),
        ({}, ""),
    ],
)
def test_a_denial_contains_the_reason(stated: dict[str, Any], why: str) -> None:
    assert verdict({"status": {"conditions": [{"type": "Denied", **stated}]}}).why == why
