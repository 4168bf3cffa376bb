"""The images of a cluster: stand-ins whose tests use Services and names, CoreDNS, and a further API
server with its etcd.
"""

from __future__ import annotations

from pathlib import Path

from tools.conformance.images import needed, short_name, stand_ins, with_libraries
from tools.env.debian import unpacked
from tools.env.images import Image

COREDNS = "kubeletpy.local/coredns:1"
TOOLS = ("dig", "getent", "nc")
"""Programs that tests run in pods: those of bind9-dnsutils, libc-bin and netcat-openbsd of
Debian."""
_API_SERVER = "sample-apiserver"


def cluster_images(listed: str, programs: Path, certificate: Path, key: Path) -> list[Image]:
    """The images of a cluster; ``listed`` is the output of `e2e.test --list-images`.

    The other arguments, and the error, are those of :func:`tools.conformance.images.stand_ins`.
    """
    found = stand_ins(needed(listed), programs, certificate, key, TOOLS)
    return [
        *(each for each in found if short_name(each.name) != _API_SERVER),
        *(
            _program_image(each.name, programs / _API_SERVER)
            for each in found
            if short_name(each.name) == _API_SERVER
        ),
        _program_image(COREDNS, programs / "coredns"),
        *(_etcd_image(name) for name in etcd_names(listed)),
    ]


def etcd_names(listed: str) -> list[str]:
    """The names of etcd's images in the output of `e2e.test --list-images`."""
    return sorted(name for name in listed.split() if short_name(name) == "etcd")


def _program_image(name: str, program: Path) -> Image:
    """An image with one program that is linked statically, which it runs."""
    files = {program.name: (0o755, program.read_bytes())}
    return Image(name, files, config={"Entrypoint": [f"/{program.name}"]})


def _etcd_image(name: str) -> Image:
    program = "usr/local/bin/etcd"
    files = with_libraries(unpacked("etcd-server", "testing") / "usr" / "bin" / "etcd")
    files[program] = files.pop("bin/etcd")
    return Image(name, files, folders={"tmp": 0o1777}, config={"Entrypoint": [f"/{program}"]})
