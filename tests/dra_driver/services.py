"""The driver's service, of either version: what it has prepared, and the CDI files it wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from kubeletpy.remote.generated import dra_v1_pb2, dra_v1beta1_pb2

VERSIONS: dict[str, ModuleType] = {"v1.DRAPlugin": dra_v1_pb2, "v1beta1.DRAPlugin": dra_v1beta1_pb2}


@dataclass(frozen=True, slots=True)
class Given:
    """A device of a claim, as the scheduler allocated it."""

    device: str
    requests: Sequence[str] = ()


def one_device(claim: Any) -> list[Given]:
    """The default allocation of every claim."""
    return [Given("d0", ["r0"])]


@dataclass(slots=True)
class Services:
    """One driver.

    Attributes:
        allocation: the devices of this driver that the API allocated to a claim.
        cdi_dir: where CDI files go; None: there are none, and devices have names anyway.
        prepared: uid of a claim -> its devices' CDI names.
        refuses: uid of a claim -> the error that the driver answers.
        history: calls, each with the claims' names.
    """

    name: str
    version: str = "v1.DRAPlugin"
    allocation: Callable[[Any], list[Given]] = one_device
    cdi_dir: Path | None = None
    prepared: dict[str, list[str]] = field(default_factory=dict)
    refuses: dict[str, str] = field(default_factory=dict)
    history: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def NodePrepareResources(self, request: Any) -> Any:
        """Prepare each claim, or return its error."""
        self.history.append(("prepare", tuple(claim.name for claim in request.claims)))
        answer = VERSIONS[self.version].NodePrepareResourcesResponse()
        for claim in request.claims:
            if error := self.refuses.get(claim.uid):
                answer.claims[claim.uid].error = error
                continue
            supplied = self.allocation(claim)
            names = [f"{self.name}/claim={claim.uid}-{each.device}" for each in supplied]
            for each, name in zip(supplied, names, strict=True):
                answer.claims[claim.uid].devices.add(
                    request_names=each.requests,
                    pool_name="pool",
                    device_name=each.device,
                    cdi_device_ids=[name],
                )
            if not supplied:
                answer.claims[claim.uid].SetInParent()
            self.prepared[claim.uid] = names
            self._write(claim.uid, supplied)
        return answer

    def NodeUnprepareResources(self, request: Any) -> Any:
        """Unprepare each claim; one that is not prepared succeeds as well."""
        self.history.append(("unprepare", tuple(claim.name for claim in request.claims)))
        answer = VERSIONS[self.version].NodeUnprepareResourcesResponse()
        for claim in request.claims:
            if error := self.refuses.get(claim.uid):
                answer.claims[claim.uid].error = error
                continue
            self.prepared.pop(claim.uid, None)
            if self.cdi_dir is not None:
                self._file(claim.uid).unlink(missing_ok=True)
            answer.claims[claim.uid].SetInParent()
        return answer

    def _file(self, uid: str) -> Path:
        assert self.cdi_dir is not None
        return self.cdi_dir / f"{self.name}-{uid}.json"

    def _write(self, uid: str, supplied: Sequence[Given]) -> None:
        if self.cdi_dir is None:
            return
        devices = [
            {
                "name": f"{uid}-{each.device}",
                "containerEdits": {"env": [f"DRA_{each.device.upper()}={self.name}"]},
            }
            for each in supplied
        ]
        text = {"cdiVersion": "0.6.0", "kind": f"{self.name}/claim", "devices": devices}
        self._file(uid).write_text(json.dumps(text))
