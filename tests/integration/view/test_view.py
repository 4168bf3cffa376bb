"""``kubeletpy view`` of a real node, in a real browser."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.integration.lifecycle.command import run
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.view.browser import browser

WORK = (
    "trap 'exit 0' TERM; while :; do"
    " i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.1; done"
)
"""Uses some of a CPU."""


async def test_a_node_in_a_browser(node2: Node, namespace: str, tmp_path: Path) -> None:
    node = node2
    limits = {"limits": {"memory": "32Mi"}}
    node.apply(
        pod("worker", container("main", WORK, resources=limits)),
        pod("crash", container("main", "echo no route to the database; exit 3")),
        namespace=namespace,
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubeletpy.cli.main", "view"),
        *("--socket", str(node.root_dir / "explain.sock")),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().strip()
        async with browser() as page:
            await page.size(1280, 800)
            await page.go(url)
            await page.until(f"document.querySelector('h1').textContent === '{node.name}'")

            def row(name: str) -> str:
                return f"document.querySelector('#list li[data-path=\"{namespace}/{name}\"]')"

            await page.until(f"{row('crash')}.textContent.includes('main keeps exiting')")
            await page.until(f"{row('crash')}.className === 'sick'")
            await page.until(f"{row('worker')}.className === 'well'")
            await page.until(f"/\\d+m CPU/.test({row('worker')}.textContent)")
            await page.run(f"{row('worker')}.click()")
            for part, parts in {
                "head": "running and ready",
                "containers": "of 32 MiB",
                "falls": "RunPodSandbox attempt 0",
                "decisions": "start container main",
                "events": "Started main",
            }.items():
                await page.until(
                    f"document.getElementById('{part}').textContent.includes('{parts}')"
                )
            await page.until("document.querySelectorAll('.plots polyline').length === 2")
            node.kubectl(
                *("delete", "pod", "worker", "--grace-period=1", "--wait=false"),
                namespace=namespace,
            )
            await page.until(
                "document.querySelector('#head').textContent.includes('on this node any more')"
            )
            await page.until(f"{row('worker')} === null")
            assert page.complaints() == []
            assert all(each.startswith((url, "data:")) for each in page.requested())

            report = tmp_path / "report.html"
            report.write_text(run(node, "timeline", f"{namespace}/crash", "-o", "html"))
            page.events.clear()
            await page.go(report.as_uri())
            await page.until("document.querySelectorAll('svg rect').length > 3")
            await page.until("document.querySelectorAll('tbody tr').length > 2")
            assert page.complaints() == []
            assert page.requested() == [report.as_uri()]
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 10) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
