"""The store: one counter, data that survives, and changes that a watch can catch up with."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kubeletpy_up.errors import ApiError
from kubeletpy_up.storage.history import Change
from kubeletpy_up.storage.store import Store, StoreError
from tests.kit.clocks import SetClock
from tests.kit.costs import calls


def _obj(name: str, **fields: object) -> dict[str, object]:
    return {"kind": "ConfigMap", "metadata": {"name": name, "namespace": "d"}, **fields}


def test_one_counter_for_all_objects_survives_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "api.db")
    store = Store(path, SetClock())
    store.put("configmaps", "d", "a", _obj("a"))
    store.put("secrets", "d", "b", _obj("b"))
    removed = store.remove("configmaps", "d", "a")
    assert removed["metadata"]["resourceVersion"] == "3"
    store.close()
    again = Store(path, SetClock())
    assert again.revision == 3, "a deletion is the last write: the counter must not go back"
    assert again.get("configmaps", "d", "a") is None
    found = again.get("secrets", "d", "b")
    assert found is not None and found.object["metadata"]["resourceVersion"] == "2"


def test_acknowledged_writes_survive_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "api.db"
    script = (
        "import sys\nfrom kubeletpy.base.clock import SystemClock\n"
        "from kubeletpy_up.storage.store import Store\n"
        f"s = Store({str(path)!r}, SystemClock())\n"
        "while True:\n"
        "    w = s.put('pods', 'd', 'a', {'metadata': {'name': 'a'}, 'n': s.revision})\n"
        "    print(w['metadata']['resourceVersion'], flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        answered = b"".join(writer.stdout.readline() for _ in range(50))
        writer.kill()
        answered += writer.stdout.read()  # nothing, when the writer was slower than its reader
        last = int(answered.split()[-1])
    store = Store(str(path), SetClock())
    entry = store.get("pods", "d", "a")
    assert entry is not None
    assert entry.revision >= last
    assert store.revision == entry.revision


def test_the_database_is_private(tmp_path: Path) -> None:
    Store(str(tmp_path / "api.db"), SetClock()).put("secrets", "d", "a", _obj("a"))
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_a_file_that_is_not_a_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "api.db"
    path.write_text("not a database, but long enough to be taken for one" * 20)
    with pytest.raises(StoreError, match=r"api\.db"):
        Store(str(path), SetClock())


def test_an_unreadable_object_does_not_affect_others(tmp_path: Path) -> None:
    path = str(tmp_path / "api.db")
    store = Store(path, SetClock())
    store.put("configmaps", "d", "a", _obj("a"))
    store.put("configmaps", "d", "b", _obj("b"))
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE objects SET body='{' WHERE name='a'")
    assert [key for key, _ in Store(path, SetClock()).entries("configmaps")] == [("d", "b")]


def test_changes_since_has_before_and_after() -> None:
    store = Store(":memory:", SetClock())
    store.put("pods", "d", "a", _obj("a", n=1))
    store.put("secrets", "d", "s", _obj("s"))
    store.put("pods", "d", "a", _obj("a", n=2))
    store.remove("pods", "d", "a")
    changes = store.changes_since(1, "pods")
    assert [(c.type, c.revision) for c in changes] == [("MODIFIED", 3), ("DELETED", 4)]
    assert changes[0].previous is not None and changes[0].previous["n"] == 1
    assert store.changes_since(4, "pods") == []


@pytest.mark.parametrize("limits", [{"history_count": 3}, {"history_bytes": 250}])
def test_bounded_history_answers_expired(limits: dict[str, int]) -> None:
    store = Store(":memory:", SetClock(), **limits)
    for index in range(20):
        store.put("pods", "d", "a", _obj("a", n=index))
    with pytest.raises(ApiError) as caught:
        store.changes_since(2, "pods")
    assert (caught.value.code, caught.value.reason) == (410, "Expired")
    assert [c.revision for c in store.changes_since(18, "pods")] == [19, 20]
    with pytest.raises(ApiError):
        store.changes_since(21, "pods")


def test_history_is_bounded_by_age() -> None:
    clock = SetClock()
    store = Store(":memory:", clock, history_seconds=60)
    store.put("pods", "d", "a", _obj("a"))
    clock.time += 61
    store.put("pods", "d", "b", _obj("b"))
    assert not store.knows(0)
    assert [c.object["metadata"]["name"] for c in store.changes_since(1, "pods")] == ["b"]


def test_listeners_get_changes_in_order_even_if_one_writes() -> None:
    store = Store(":memory:", SetClock())
    heard: list[int] = []

    def writes_once(change: Change) -> None:
        if change.revision == 1:
            store.put("pods", "d", "b", _obj("b"))

    store.subscribe(writes_once)
    stop = store.subscribe(lambda change: heard.append(change.revision))
    store.put("pods", "d", "a", _obj("a"))
    assert heard == [1, 2]
    stop()
    store.put("pods", "d", "c", _obj("c"))
    assert heard == [1, 2]


def test_a_write_costs_few_calls(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "api.db"), SetClock())
    big = _obj("a", data={f"key{i}": "x" * 40 for i in range(100)})
    store.put("pods", "d", "a", big)
    assert calls(lambda: store.put("pods", "d", "a", big)) < 36
