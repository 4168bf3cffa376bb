"""Fields that may contain secrets or texts of users are left out of a value's `repr`."""

from __future__ import annotations

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.model import Published, PublishedOnDisk
from kubeletpy.volumes.containers.environment import EnvFile
from kubeletpy.volumes.files.paths import FileContent, TokenInput
from kubeletpy.volumes.operations.model import PodMount, Presence
from kubeletpy.volumes.pod_volumes.payload import DownwardInput
from tests.kit.volumes import spec

SECRET = "s3cr3t"
META = {"name": "p", "namespace": "d", "uid": "u", "annotations": {"a": SECRET}}
POD = Pod({"metadata": META, "spec": {"containers": [{"name": "c"}]}})  # type: ignore[typeddict-item]
TEXTS = {"a": SECRET}


@pytest.mark.parametrize(
    "value",
    [
        EnvFile(TEXTS),
        FileContent(SECRET.encode(), 0o600),
        TokenInput(SECRET),
        DownwardInput(POD, {"x": SECRET}, TEXTS, TEXTS, None),
        spec(source={"volumeAttributes": TEXTS}, pv={"x": SECRET}, claim={"x": SECRET}),
        PodMount(
            PublishedOnDisk("csi", "v", "u", "pv", "/p"), Presence.THERE, False, Published(SECRET)
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_its_content_is_not_shown(value: object) -> None:
    assert SECRET not in repr(value)


def test_downward_inputs_are_compared_without_the_pod() -> None:
    other = Pod({**POD.object, "metadata": {**META, "uid": "other"}})  # type: ignore[typeddict-item]
    first = DownwardInput(POD, {}, {}, {}, None)
    assert first == DownwardInput(other, {}, {}, {}, None)
    assert first != DownwardInput(POD, {}, {"l": "x"}, {}, None)
