"""An API server that answers with objects other than the requested ones."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import SECRETS
from kubeletpy.kubeapi.tracked_object import ObjectKey, ObjectReader, is_that_object

KEY = ObjectKey(SECRETS, "mine", "login")


def _secret(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "login", "namespace": "mine", **metadata}, "data": {"a": "c2Vj"}}


@pytest.mark.parametrize(
    ("found", "right"),
    [
        (_secret(), True),
        ({"metadata": {"name": "login"}}, True),
        (_secret(namespace="theirs"), False),
        (_secret(namespace=["mine"]), False),
        (_secret(name="other"), False),
        (_secret(name=None), False),
        ({"metadata": None}, False),
        ({"metadata": []}, False),
        ({}, False),
        ([], False),
        (None, False),
    ],
)
async def test_only_the_object_that_was_asked_for_is_taken(found: Any, right: bool) -> None:
    class Api:
        async def get(self, *_: Any) -> Any:
            return found

    assert is_that_object(KEY, found) is right
    reading = ObjectReader(cast(Any, Api())).read_object(KEY, first=True)
    if right:
        assert await reading == found
        return
    with pytest.raises(ApiError, match='another object than secret "mine/login"') as caught:
        await reading
    assert "c2Vj" not in str(caught.value)
