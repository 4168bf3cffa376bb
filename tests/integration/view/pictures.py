"""Renew the pictures of the README from a node that runs here, as root.

    ./up.sh                           # in another terminal; then start the pods that are to be seen
    python -m tests.integration.view.pictures default/sample default/web

Writes `docs/pictures/timeline.svg`, the timeline of the first pod, and `view.webp`, what a browser
shows of the second in `kubeletpy view`. ``--socket`` names the socket of another agent.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from tests.integration.view.browser import browser

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "pictures"
_KUBELETPY = (sys.executable, "-m", "kubeletpy.cli.main")


def main() -> None:
    """Run a command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("timeline", metavar="POD", help="NAMESPACE/NAME")
    parser.add_argument("opened", metavar="POD", help="NAMESPACE/NAME")
    parser.add_argument("--socket", help="the agent's socket (ROOT_DIR/explain.sock)")
    parsed = parser.parse_args()
    node = ("--socket", parsed.socket) if parsed.socket else ()
    drawn = subprocess.check_output((*_KUBELETPY, "timeline", parsed.timeline, "-o", "svg", *node))
    (FOLDER / "timeline.svg").write_bytes(drawn)
    with subprocess.Popen((*_KUBELETPY, "view", *node), stdout=subprocess.PIPE, text=True) as view:
        assert view.stdout is not None
        try:
            picture = asyncio.run(photograph(view.stdout.readline().strip(), parsed.opened))
        finally:
            view.terminate()
    (FOLDER / "view.webp").write_bytes(picture)


async def photograph(url: str, pod: str) -> bytes:
    """Return what a browser shows of a pod, as WebP."""
    async with browser() as page:
        await page.size(1180, 700)
        await page.go(f"{url}#{quote(pod, safe='')}")
        await page.until("document.querySelectorAll('#falls .step').length")
        taken = await page.call("Page.captureScreenshot", format="webp", quality=70)
        return base64.b64decode(taken["data"])


if __name__ == "__main__":
    main()
