"""Check what the repository's Markdown files point to: links, anchors and paths in backticks.

python tools/check_links.py    # prints each dead reference; exits 1 if there is one

`mkdocs build --strict` checks the links between the pages of the site. This covers the rest: the
README and other files outside docs/, links from there into the repository, and file names in
backticks, such as `deploy/rbac.yaml`. Links to other hosts are not followed. The README has to link
each page of the site's navigation; of the runbooks and of the reference, one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import markdown

ROOT = Path(__file__).resolve().parent.parent
_TARGET = re.compile(r'<(?:a|img)\b[^>]*?\b(?:href|src)="([^"]+)"')
_ANCHOR = re.compile(r'<\w+ id="([^"]+)"')
_BLOCK = re.compile(r"<pre>.*?</pre>", re.DOTALL)
_CODE = re.compile(r"<code>([^<]+)</code>")


@cache
def page(path: Path) -> str:
    """A Markdown file as HTML, rendered as the site renders it, without its blocks of code."""
    html = markdown.markdown(path.read_text(), extensions=["tables", "toc", "fenced_code"])
    return _BLOCK.sub("", html)


def dead_links(path: Path) -> list[str]:
    """Links on a page to files or anchors that do not exist."""
    dead = []
    for link in _TARGET.findall(page(path)):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        wrong_anchor = (
            parts.fragment
            and target.suffix == ".md"
            and target.is_file()
            and parts.fragment not in _ANCHOR.findall(page(target))
        )
        if not target.exists() or not target.is_relative_to(ROOT) or wrong_anchor:
            dead.append(link)
    return dead


def dead_paths(path: Path, top: set[str]) -> list[str]:
    """Names in backticks that begin with a folder of the repository but don't exist."""
    return [
        name
        for name in _CODE.findall(page(path))
        if "/" in name
        and name.split("/")[0] in top
        and not set(name) & set(" *{}&…:[]()")
        and not (ROOT / name).exists()
    ]


def unlisted(readme: Path, navigation: Path) -> list[str]:
    """Pages of the navigation that the README does not link."""
    linked = set(_TARGET.findall(page(readme)))
    pages = (line.rpartition(": ")[2] for line in navigation.read_text().splitlines())
    top = {f"docs/{each}" for each in pages if each.endswith(".md") and "/" not in each}
    return sorted(top - {"docs/index.md"} - {link.partition("#")[0] for link in linked})


def main() -> int:
    """Entry point; see the module docstring."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    top = {name.split("/")[0] for name in listed if "/" in name}
    wrong = 0
    for name in sorted(name for name in listed if name.endswith(".md") and (ROOT / name).exists()):
        path = ROOT / name
        for dead in (*dead_links(path), *dead_paths(path, top)):
            print(f"{name}: {dead} leads to nothing", file=sys.stderr)
            wrong += 1
    for each in unlisted(ROOT / "README.md", ROOT / "mkdocs.yml"):
        print(f"README.md: {each} of the navigation is not linked", file=sys.stderr)
        wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
