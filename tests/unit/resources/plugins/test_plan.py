"""Which plugin is registered or removed next."""

from __future__ import annotations

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.resources.plugins.model import (
    CSI,
    Known,
    PluginInfo,
    PluginPlan,
    Stamp,
    name_is_free,
    plan,
)

OLD, NEW = (1, 1), (2, 2)


def info(stamp: Stamp = OLD, socket: str = "/p/a.sock") -> PluginInfo:
    return PluginInfo(CSI, "a", "/p/csi.sock", ("1.0.0",), socket, stamp)


REGISTERED = Known(registered=info(), tried=OLD, name="a")
FAILED = Known(tried=OLD, name="a", failures=1, retry_at=10.5, problem="no")


def parts(planned: PluginPlan) -> tuple[list[str], list[str], float | None, list[str]]:
    """A plan in short form."""
    return (
        [f"{each.info.socket}: {each.reason}" for each in planned.deregister],
        [f"{each.socket}: {each.reason}" for each in planned.register],
        planned.again_at,
        list(planned.forget),
    )


A = "/p/a.sock"


@pytest.mark.parametrize(
    ("found", "known", "planned"),
    [
        pytest.param({}, {}, ([], [], None, []), id="nothing"),
        pytest.param({A: OLD}, {}, ([], [f"{A}: a new socket"], None, []), id="new"),
        pytest.param({A: OLD}, {A: REGISTERED}, ([], [], None, []), id="as it should be"),
        pytest.param(
            {}, {A: REGISTERED}, ([f"{A}: its socket was removed"], [], None, []), id="gone"
        ),
        pytest.param(
            {A: NEW},
            {A: REGISTERED},
            ([f"{A}: its socket was created again"], [], None, []),
            id="anew",
        ),
        pytest.param({A: OLD}, {A: Known(busy=True)}, ([], [], None, []), id="being registered"),
        pytest.param(
            {}, {A: Known(busy=True, registered=info())}, ([], [], None, []), id="being let go"
        ),
        pytest.param({A: OLD}, {A: FAILED}, ([], [], 10.5, []), id="it waits"),
        pytest.param(
            {A: OLD, "/p/b.sock": OLD},
            {A: FAILED, "/p/b.sock": replace(FAILED, retry_at=10.25)},
            ([], [], 10.25, []),
            id="the first of two that wait",
        ),
        pytest.param(
            {A: OLD}, {A: Known(tried=OLD, failures=1)}, ([], [f"{A}: try 2"], None, []), id="again"
        ),
        pytest.param(
            {A: NEW}, {A: FAILED}, ([], [f"{A}: a new socket"], None, []), id="anew after a failure"
        ),
        pytest.param({}, {A: FAILED}, ([], [], None, [A]), id="failed and gone"),
        pytest.param(
            {"/p/b.sock": NEW},
            {A: REGISTERED},
            ([f"{A}: its socket was removed"], ["/p/b.sock: a new socket"], None, []),
            id="one goes, another comes",
        ),
    ],
)
def test_plan(found: dict[str, Stamp], known: dict[str, Known], planned: object) -> None:
    assert parts(plan(found, known, 10.0)) == planned


def test_waits_double_up_to_the_longest() -> None:
    known, waits = Known(), []
    for _ in range(10):
        known = known.failed(OLD, "a", "no", 0.0)
        waits.append(known.retry_at)
    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122]
    assert known.failed(NEW, "a", "no", 0.0).retry_at == 0.5
    assert not replace(REGISTERED, busy=True).failed(OLD, "a", "no", 0.0).busy
    assert replace(REGISTERED, busy=True).failed(OLD, "a", "no", 0.0).registered is None


def test_a_freed_name_ends_the_backoff_of_plugins_with_that_name() -> None:
    other = Known(tried=OLD, name="other", failures=9, retry_at=100.0)
    known = name_is_free({A: FAILED, "/p/o.sock": other}, "a", 10.0)
    assert parts(plan({A: OLD, "/p/o.sock": OLD}, known, 10.0)) == ([], [f"{A}: try 2"], 100.0, [])


def test_a_plugin_that_is_being_registered_is_left_alone() -> None:
    busy = replace(FAILED, busy=True)
    assert name_is_free({A: busy}, "a", 10.0) == {A: busy}
