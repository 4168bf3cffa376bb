"""The iptables chains: created, kept, restored after a flush; and nodes without iptables."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from kubeletpy.base.host.program import ProgramFailed
from kubeletpy.node.guards.iptables import (
    CANARY,
    FIREWALL,
    HINT,
    Ended,
    IPTablesChains,
    IPTablesError,
    required_rules,
    run_command,
)
from tests.kit.virtual_time import on_virtual_time


class Tables:
    """Test double for iptables and its tables, with the program's answers."""

    def __init__(self) -> None:
        self.rules: dict[tuple[str, str], list[tuple[str, ...]]] = {}
        self.flush()
        self.commands: list[list[str]] = []
        self.failing = 0
        self.refuses = False
        self.missing = False

    def flush(self, *tables: str) -> None:
        for table in tables or ("mangle", "nat", "filter"):
            for key in [key for key in self.rules if key[0] == table]:
                del self.rules[key]
            for chain in ("INPUT", "OUTPUT", "POSTROUTING"):
                self.rules[table, chain] = []

    async def run(self, parts: Sequence[str]) -> Ended:
        self.commands.append(list(parts))
        if self.missing:
            raise ProgramFailed("could not be started: No such file or directory")
        if self.failing:
            return Ended(self.failing, "Permission denied (you must be root)")
        program, wait, seconds, flag, table, how, chain, *rule = parts
        assert (program[-6:], wait, seconds, flag) == ("tables", "-w", "5", "-t")
        there = self.rules.get((table, chain))
        if how == "-N":
            if self.refuses:
                return Ended(1, "Protocol not supported")
            if there is not None:
                return Ended(1, "Chain already exists.")
            self.rules[table, chain] = []
        elif there is None or (how == "-C" and tuple(rule) not in there):
            return Ended(1, "no such thing")
        elif how == "-I":
            there.insert(0, tuple(rule))
        elif how == "-A":
            there.append(tuple(rule))
        return Ended(0, "")

    def chains(self) -> set[tuple[str, str]]:
        return {key for key in self.rules if key[1].startswith("KUBE-")}


CANARIES = {("mangle", CANARY), ("nat", CANARY), ("filter", CANARY)}
EXPECTED = {
    4: {("mangle", HINT), ("filter", FIREWALL), *CANARIES},
    6: {("mangle", HINT), *CANARIES},
}


@pytest.mark.parametrize(("code", "is_done"), [(0, True), (1, False), (2, None), (-9, None)])
async def test_exit_codes(code: int, is_done: bool | None) -> None:
    async def run(parts: Sequence[str]) -> Ended:
        return Ended(code, "")

    chains = IPTablesChains(4, run)
    if is_done is not None:
        assert await chains._run_check(["iptables"]) is is_done
        return
    with pytest.raises(IPTablesError, match=f"iptables ended with {code}"):
        await chains._run_check(["iptables"])


def test_the_rule_that_kube_proxy_makes_too() -> None:
    rule = list(required_rules(4))[-1]
    assert " ".join(rule.make) == (
        "-A KUBE-FIREWALL -m comment --comment block incoming localnet connections "
        "--dst 127.0.0.0/8 ! --src 127.0.0.0/8 -m conntrack ! --ctstate "
        "RELATED,ESTABLISHED,DNAT -j DROP"
    )


@on_virtual_time
@pytest.mark.parametrize("version", [4, 6])
async def test_chains_are_created_once_and_again_after_a_flush(version: int) -> None:
    tables = Tables()
    tables.rules["filter", "OUTPUT"] = [("-j", "SOMEBODYS")]
    task = asyncio.create_task(IPTablesChains(version, tables.run).run())
    await asyncio.sleep(1)
    assert tables.chains() == EXPECTED[version]
    jump = [("-j", FIREWALL)] * (version == 4)
    assert tables.rules["filter", "OUTPUT"] == [*jump, ("-j", "SOMEBODYS")]
    assert tables.rules["filter", "INPUT"] == jump
    assert len(tables.rules.get(("filter", FIREWALL), [])) == (version == 4)
    made = len(tables.commands)
    await asyncio.sleep(600)
    assert len(tables.commands) == made + 10  # one check a minute
    tables.flush("mangle")
    await asyncio.sleep(58.5)
    tables.flush()
    await asyncio.sleep(3)
    assert tables.chains() == EXPECTED[version]
    assert tables.rules["filter", "OUTPUT"] == jump
    task.cancel()
    await asyncio.wait([task])
    assert tables.chains() == EXPECTED[version]


@on_virtual_time
async def test_a_second_agent_makes_nothing_twice() -> None:
    tables = Tables()
    for _ in range(2):
        task = asyncio.create_task(IPTablesChains(4, tables.run).run())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
    assert tables.rules["filter", "OUTPUT"] == [("-j", FIREWALL)]
    assert len(tables.rules["filter", FIREWALL]) == 1


@on_virtual_time
async def test_a_partial_flush_is_repaired_after_five_seconds() -> None:
    tables = Tables()
    task = asyncio.create_task(IPTablesChains(6, tables.run).run())
    await asyncio.sleep(1)
    tables.flush("mangle")
    await asyncio.sleep(60)
    assert ("mangle", HINT) not in tables.chains()
    await asyncio.sleep(5)
    assert tables.chains() == EXPECTED[6]
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("missing", [True, False])
def test_without_iptables_one_report(missing: bool, caplog: pytest.LogCaptureFixture) -> None:
    @on_virtual_time
    async def live() -> None:
        tables = Tables()
        tables.missing, tables.failing = missing, 4
        await IPTablesChains(4, tables.run).run()
        assert len(tables.commands) == 1

    with caplog.at_level(logging.INFO):
        live()
    assert [record.levelname for record in caplog.records] == ["INFO"]


@on_virtual_time
async def test_a_failure_is_reported_once_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    tables = Tables()
    task = asyncio.create_task(IPTablesChains(4, tables.run).run())
    await asyncio.sleep(1)
    tables.flush()
    tables.failing = 4
    await asyncio.sleep(600)
    assert tables.chains() == set()
    tables.failing = 0
    await asyncio.sleep(61)
    assert tables.chains() == EXPECTED[4]
    task.cancel()
    await asyncio.wait([task])
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "iptables chains for other components could not be created; trying again"
    ]


async def test_how_a_command_ended() -> None:
    assert await run_command(["true"]) == Ended(0, "")
    parts = ["sh", "-c", 'printf "no\\n  such chain\\n" >&2; exit 1']
    assert await run_command(parts) == Ended(1, "no such chain")
    with pytest.raises(ProgramFailed, match="could not be started: No such file"):
        await run_command(["/none/iptables"])
    with pytest.raises(ProgramFailed, match="signal 9"):
        await run_command(["sh", "-c", "kill -9 $$"])


@on_virtual_time
async def test_a_kernel_that_makes_no_chain_is_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The exit code of iptables is then that of a chain that exists."""
    tables = Tables()
    tables.refuses = True
    with caplog.at_level(logging.INFO):
        task = asyncio.create_task(IPTablesChains(4, tables.run).run())
        await asyncio.sleep(600)
    task.cancel()
    await asyncio.wait([task])
    assert [record.getMessage() for record in caplog.records] == [
        "iptables chains for other components could not be created; trying again"
    ]
