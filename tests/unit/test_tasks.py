"""Tasks end together with the call that started them, however that ends."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kubeletpy.base.tasks import (
    Lasting,
    background,
    cancel_tasks,
    run_all,
    run_together,
    until_one_ends,
    wait_until,
    wait_within,
)

pytestmark = pytest.mark.virtual_time


def others() -> set[asyncio.Task[Any]]:
    """The tasks of the loop except the test's own."""
    return {each for each in asyncio.all_tasks() if each is not asyncio.current_task()}


class Work:
    """A call that needs seconds of cleanup when it is canceled."""

    def __init__(self, cleanup_s: float = 3.0) -> None:
        self.cleanup_s = cleanup_s
        self.cleaned = False

    async def run(self) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(self.cleanup_s)
            self.cleaned = True


async def fail(after: float, error: Exception) -> None:
    await asyncio.sleep(after)
    raise error


async def value(after: float, result: str) -> str:
    await asyncio.sleep(after)
    return result


async def test_results_have_the_order_of_the_calls() -> None:
    assert await run_together(value(2, "a"), value(1, "b"), value(3, "c")) == ("a", "b", "c")
    assert await run_together() == ()


async def test_the_first_error_is_raised_once_the_others_have_ended() -> None:
    work = Work()
    with pytest.raises(OSError, match="first"):
        await run_together(work.run(), fail(1, OSError("first")), fail(2, OSError("second")))
    assert work.cleaned
    assert asyncio.get_running_loop().time() == pytest.approx(4.0)
    assert not others()


async def test_an_error_may_leave_the_others_to_their_own_ends() -> None:
    with pytest.raises(OSError, match="one"):
        await run_all(value(5, "a"), fail(2, OSError("one")), fail(1, OSError("two")))
    assert asyncio.get_running_loop().time() == pytest.approx(5.0)
    assert await run_all(value(2, "a"), value(1, "b")) == ["a", "b"]


async def in_background(work: Work) -> None:
    async with background(work.run()):
        await asyncio.sleep(1000)


async def beside_another(work: Work) -> None:
    await run_together(work.run(), asyncio.sleep(1000))


async def beside_another_to_its_end(work: Work) -> None:
    await run_all(work.run(), asyncio.sleep(1000))


async def after_an_error(work: Work) -> None:
    """Canceled while it waits for what its own error has canceled."""
    await run_together(work.run(), fail(0, OSError("early")))


@pytest.mark.parametrize(
    "call", [in_background, beside_another, beside_another_to_its_end, after_an_error]
)
async def test_a_canceled_call_ends_after_its_tasks(
    call: Callable[[Work], Coroutine[Any, Any, None]],
) -> None:
    work = Work()
    running = asyncio.create_task(call(work))
    await asyncio.sleep(1)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert not others()


async def test_a_second_cancellation_cuts_a_hanging_cleanup_off() -> None:
    """The agent's stop has a deadline: what resists its first cancellation gets another one."""
    work = Work(cleanup_s=1000)
    running = asyncio.create_task(in_background(work))
    await asyncio.sleep(1)
    running.cancel()
    await asyncio.sleep(1)
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])
    assert asyncio.get_running_loop().time() == pytest.approx(2.0)
    assert not others()
    assert not work.cleaned


async def test_tasks_that_have_ended_are_skipped() -> None:
    done = asyncio.create_task(value(0, "a"))
    await done
    await cancel_tasks((None, done))
    assert not done.cancelled()


async def test_waiting_for_one_of_several_leaves_the_choice_to_the_caller() -> None:
    async with background(fail(1, OSError("x"))) as one, background(value(5, "y")) as other:
        await until_one_ends(one, other)
        assert isinstance(one.exception(), OSError)
        assert not other.done()
    assert other.cancelled()


async def test_lasting_work_is_completed_although_its_caller_is_canceled() -> None:
    lasting, written = Lasting(), list[str]()

    async def write() -> None:
        await asyncio.sleep(5)
        written.append("done")

    caller = asyncio.create_task(lasting.finish(write()))
    await asyncio.sleep(1)
    caller.cancel()
    await asyncio.wait([caller])
    assert written == []
    await lasting.close()
    assert written == ["done"]
    assert not others()


async def test_errors_of_lasting_work_reach_the_caller() -> None:
    with pytest.raises(OSError, match="full"):
        await Lasting().finish(fail(1, OSError("full")))


async def test_an_error_does_not_keep_itself_alive() -> None:
    class Refused(Exception):
        pass

    async def refuse() -> None:
        raise Refused

    seen: list[weakref.ref[Refused]] = []
    gc.collect()
    gc.disable()
    try:
        for call in (lambda: run_together(refuse()), lambda: Lasting().finish(refuse())):
            try:
                await call()
            except Refused as error:
                seen.append(weakref.ref(error))
        await asyncio.sleep(0)
        assert [each() for each in seen] == [None, None]
    finally:
        gc.enable()


async def test_an_event_is_awaited_for_a_while() -> None:
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    assert (await wait_within(event, 5), loop.time()) == (False, 5)
    assert (await wait_until(event, 7), loop.time()) == (False, 7)
    loop.call_later(2, event.set)
    assert (await wait_within(event, None), loop.time()) == (True, 9)
    assert await wait_within(event, 0)
