"""The names of steps and calls, as records and traces spell them."""

from __future__ import annotations

import pytest

from kubeletpy.metrics.trace.model import Name, Step, TraceCall, named


@pytest.mark.parametrize("name", [*Step, *TraceCall])
def test_a_name_is_found_by_its_text(name: Name) -> None:
    assert named(str(name)) is name


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="dance"):
        named("dance")
