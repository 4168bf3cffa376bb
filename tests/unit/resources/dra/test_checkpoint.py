"""The state file: the kubelet's checksums; reading returns what was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.resources.dra.checkpoint import checksum, parse_checkpoint, render
from kubeletpy.resources.dra.claim_manager import ClaimState
from kubeletpy.resources.dra.model import ClaimDevice, ClaimInfo
from kubeletpy.resources.placement.state import StateError

HEAD = '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1"'
DEVICE = ClaimDevice("pool", "d0", ("r0", "r1"), ("a.example.com/claim=x",), "share")
CLAIMS = [
    ClaimInfo("u1", "a", "n", frozenset({"p", "q"}), {"a.example.com": (DEVICE,)}, restored=True),
    ClaimInfo("u2", "b", "n", frozenset({"p"}), {"b.example.com": ()}, restored=True),
]


@pytest.mark.parametrize(
    ("claims", "expected"),
    [("null", 4010664294), ("[]", 2361995144)],
)
def test_sums_of_the_kubelet(claims: str, expected: int) -> None:
    """Source: docs/reference/behaviour-resources.md, rx."""
    data = f'{HEAD},"ClaimInfoStateList":{claims}}}'
    assert checksum(data) == expected
    assert parse_checkpoint(json.dumps({"Checksum": expected, "Data": data}, indent=1)) == []


def test_no_claims_are_written_as_the_kubelet_does() -> None:
    assert json.loads(render([])) == {
        "Data": f'{HEAD},"ClaimInfoStateList":null}}',
        "Checksum": 4010664294,
    }


@pytest.mark.parametrize(
    ("skips", "expected"),
    [
        pytest.param("", 2466046042, id="1.35, 1.36"),
        pytest.param(',"skipNodeOperations":["NodePrepareResources"]', 772576046, id="1.37"),
    ],
)
def test_files_of_each_version_are_read_and_written_as_they_were(skips: str, expected: int) -> None:
    """The checksums are those of kubelets; docs/reference/state-files.csv."""
    data = (
        f'{HEAD},"ClaimInfoStateList":[{{"ClaimUID":"claim-uid","ClaimName":"claim",'
        '"Namespace":"ns","PodUIDs":{"uid-a":{}},"DriverState":{"gpu.example.com":{"Devices":['
        '{"PoolName":"pool","DeviceName":"d0","ShareID":null,"RequestNames":["r"],'
        f'"CDIDeviceIDs":["gpu.example.com/c=d0"]}}]{skips}}}}}}}]}}'
    )
    whole = {"Data": data, "Checksum": expected}
    claims = parse_checkpoint(json.dumps({**whole, "newer": 1}))
    assert json.loads(render(claims)) == whole
    newer = data.replace('"ClaimName"', '"Newer":{},"ClaimName"')
    assert parse_checkpoint(json.dumps({"Data": newer, "Checksum": checksum(newer)})) == claims


def test_written_claims_are_read_back() -> None:
    assert parse_checkpoint(render(reversed(CLAIMS))) == CLAIMS


def test_letters_are_written_as_they_are() -> None:
    """The checksum is of the bytes, in which Go does not escape letters of any alphabet."""
    text = render([replace(CLAIMS[0], name="ä")])
    assert '\\"ClaimName\\":\\"ä\\"' in text
    assert [claim.name for claim in parse_checkpoint(text)] == ["ä"]


def test_names_and_order_of_the_fields() -> None:
    data = json.loads(render(CLAIMS[:1]))["Data"]
    assert data == (
        f'{HEAD},"ClaimInfoStateList":[{{"ClaimUID":"u1","ClaimName":"a","Namespace":"n",'
        '"PodUIDs":{"p":{},"q":{}},"DriverState":{"a.example.com":{"Devices":[{"PoolName":"pool",'
        '"DeviceName":"d0","ShareID":"share","RequestNames":["r0","r1"],'
        '"CDIDeviceIDs":["a.example.com/claim=x"]}]}}}]}'
    )


def test_skipped_calls_are_kept_as_the_kubelet_writes_them() -> None:
    """Agents before 1.37 ignore the field and read the rest."""
    claim = replace(CLAIMS[0], restored=True, skips={"a.example.com": ("*",)})
    text = render([claim])
    assert (
        '"CDIDeviceIDs":["a.example.com/claim=x"]}],"skipNodeOperations":["*"]}'
        in json.loads(text)["Data"]
    )
    assert parse_checkpoint(text) == [claim]


def _wrapped(data: str) -> str:
    return json.dumps({"Data": data, "Checksum": checksum(data)})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        render(CLAIMS).replace('"Checksum": ', '"Checksum": 1').replace('sum":', 'sum":1'),
        _wrapped("{}"),
        _wrapped('{"kind":"DRACheckpoint","apiVersion":"v9"}'),
        _wrapped(f'{HEAD},"ClaimInfoStateList":[{{}}]}}'),
        _wrapped(f'{HEAD},"ClaimInfoStateList":[1]}}'),
        _wrapped(f'{HEAD},"ClaimInfoStateList":{{"a":1}}}}'),
        _wrapped(
            f'{HEAD},"ClaimInfoStateList":[{{"ClaimUID":1,"ClaimName":"a","Namespace":"n"}}]}}'
        ),
        "[" * 100_000,
    ],
)
def test_invalid_state_files_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(StateError):
        parse_checkpoint(text)
    path = tmp_path / "dra_manager_state"
    path.write_text(text)
    with pytest.raises(StateError, match="Drain the node and remove the file"):
        ClaimState(path, lambda claims: None)
