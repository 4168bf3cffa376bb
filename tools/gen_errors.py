"""Write errors.md beside the fact tables: an anchor for each reason, each setting and each flag.

python tools/gen_errors.py            # writes the page, from four tables
python tools/gen_errors.py --check    # exits 1 if the page is not what the tables give
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tools.rulebook.tables import REFERENCE, rows  # noqa: E402

OUT = REFERENCE / "errors.md"
HEADER = """# Reasons and settings

Each reason of an event or a container's status has an anchor here, and each setting or flag that a
configuration may have wrong; a refusal prints it. `tools/gen_errors.py` makes the page from
[events.csv](events.csv), [reasons.csv](reasons.csv), [config.csv](config.csv) and
[flags.csv](flags.csv).
[Why is my pod not running?](../explain.md) shows how to find the cause on a node.
"""
KINDS = {
    "admission": "pod is rejected",
    "container-waiting": "container waits",
    "container-terminated": "container has ended",
    "start-error-code": "container cannot start",
    "sync-error-code": "pod cannot be synced",
}
"""Kind of a row of reasons.csv -> where its reason is seen."""


def render() -> str:
    """The page."""
    parts = [HEADER]
    for title, entries in (("Reasons", reasons()), ("Settings", settings()), ("Flags", flags())):
        parts.append(f"\n## {title}\n")
        for name in sorted(entries, key=str.lower):
            lines = "".join(f"- {each}\n" for each in entries[name])
            parts.append(f"\n### {name}\n\n{lines}")
    return "".join(parts)


def reasons() -> dict[str, list[str]]:
    """Reason -> where and when it is seen, and its message."""
    found: dict[str, list[str]] = {}
    for row in rows("events.csv"):
        where = f"{row['type']} event of a {row['object'].split('+')[0]}"
        line = _line(where, row["when"], row["message_template"])
        found.setdefault(row["reason"], []).append(line)
    for row in rows("reasons.csv"):
        if where := KINDS.get(row["kind"], ""):
            for name in row["name"].split():
                line = _line(where, row["when"], row["message_shape"])
                found.setdefault(name, []).append(line)
    return {name: lines for name, lines in found.items() if name[0] != "(" and "{" not in name}


def settings() -> dict[str, list[str]]:
    """Path of a field, without members of lists -> type, default and what is allowed."""
    found: dict[str, list[str]] = {}
    for row in rows("config.csv"):
        name, _, member = row["path"].partition("[]")
        if name.startswith(("(", "ImagePull")):  # rules, and records that the kubelet writes
            continue
        about = [
            f"{member.lstrip('.')} {row['type']}".strip(),
            f"default {row['default'] or 'none'}",
        ]
        about += [f"{key}: {row[key]}" for key in ("allowed", "notes", "since") if row[key]]
        found.setdefault(name, []).append(_text("; ".join(about)))
    return found


def flags() -> dict[str, list[str]]:
    """Name of a flag that sets no field -> type and default, and until when the kubelet has it."""
    return {
        row["flag"]: [
            _text(f"{row['type']}; default {row['default'] or 'none'}")
            + (f"; until Kubernetes {row['until']}" if row["until"] else "")
        ]
        for row in rows("flags.csv")
        if not row["config_field"]
    }


def _line(where: str, when: str, message: str) -> str:
    return f"{where}, {_text(when)}" + (f": `` {message} ``" if message else "")


def _text(text: str) -> str:
    return "".join(f"\\{each}" if each in "*_<>[]`" else each for each in text)


def main() -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = render()
    if parser.parse_args().check:
        stale = not OUT.exists() or OUT.read_text() != text
        if stale:
            print(f"out of date: {OUT.name}; run tools/gen_errors.py", file=sys.stderr)
        return 1 if stale else 0
    OUT.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
