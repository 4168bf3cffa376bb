"""Send the same requests to two API servers and print where their answers differ.

    python -m tests.contract --real KUBECONFIG [--other KUBECONFIG] [--record] [CONVERSATION …]

The real one's answers are the measure; the other one is an embedded API when not given.
``--record`` writes the real one's answers to ``answers/``, with which ``tests/contract`` compares.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.contract import answers
from tests.contract.client import JSON
from tests.contract.conversation import differences, hold
from tests.contract.server import Embedded, Server


def main() -> int:
    """Entry point; gives 1 if something differs."""
    parser = argparse.ArgumentParser(prog="tests.contract", description=__doc__)
    parser.add_argument(
        "--real", type=Path, help="kubeconfig of an administrator (recorded answers)"
    )
    parser.add_argument(
        "--other", type=Path, help="kubeconfig for the server to compare (embedded API)"
    )
    parser.add_argument("--record", action="store_true")
    parser.add_argument("conversation", nargs="*", default=answers.names())
    supplied = parser.parse_args()
    count = 0
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if supplied.other is None:
            embedded = Embedded(directory)
            stack.callback(embedded.close)
            supplied.other = embedded.kubeconfig

        def answered(kubeconfig: Path, name: str) -> dict[str, JSON]:
            server = Server(kubeconfig, directory)
            try:
                return hold(server, answers.steps(name), server.namespace(name.replace("_", "-")))
            finally:
                server.clear()

        for name in supplied.conversation:
            if supplied.real:
                expected = answered(supplied.real, name)
                if supplied.record:
                    answers.record(name, expected)
            else:
                expected = answers.recorded(name)
            for step, got in answered(supplied.other, name).items():
                lines = differences(expected[step], got)
                count += len(lines)
                if lines:
                    print(f"{name}: {step}", *lines, sep="\n    ")
    print(f"{count} differences")
    return 1 if count else 0


if __name__ == "__main__":
    raise SystemExit(main())
