"""Stand-ins for the images of the end-to-end tests, so that no registry of the network is needed.

All but the sandbox's hold the same programs: agnhost, nonewprivs and sample-device-plugin of the
release, hostpathplugin's proxy, busybox's applets, and bash and curl of this machine. They differ
in what they run by default.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kubeletpy.base.structs import replace
from tools.env.debian import unpacked
from tools.env.images import Image, busybox_image, pause_image
from tools.env.process import CommandError, run

REGISTRY = "registry.k8s.io"
_UNLISTED = f"{REGISTRY}/e2e-test-images/sample-device-plugin:1.8.0"
"""An image of a manifest of 1.37, which lists an older one."""
_PROGRAMS = ("bash", "curl")
_USERS = (
    b"root:x:0:0:root:/root:/bin/sh\n"
    b"user-defined-in-image:x:1000:1000::/:/bin/sh\n"
    b"nobody:x:65534:65534::/:/bin/false\n"
)
_GROUPS = (
    b"root:x:0:\n"
    b"user-defined-in-image:x:1000:\n"
    b"group-defined-in-image:x:50000:user-defined-in-image\n"
    b"nogroup:x:65534:\n"
)
_SHELL = b"""\
#!/bin/bash
[ "$*" = "-c env" ] && exec /bin/busybox env
[[ "$*" = *"| nc "* && ! /bin/nc -ef /bin/busybox ]] && exec -a "$0" /bin/bash "$@"
exec -a "$0" /bin/busybox "$@"
"""
"""busybox's shell, whose messages tests compare. It would drop environment variables whose names
are not valid in a shell, so bash itself handles `env`. It prefers its own nc to another in PATH, so
bash runs that."""
_SYSTEM = b'ID=kubeletpy-stand-in\nPRETTY_NAME="stand-in for Alpine Linux"\n'
_DATA = b'{"image": "kitten.jpg and nautilus.jpg"}\n'
"""A file of two images; tests search it for the picture of one."""
_WEB_SERVER = ["/agnhost", "netexec", "--http-port=80", "--udp-port=-1"]
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "agnhost": {"Entrypoint": ["/agnhost"], "Cmd": ["pause"]},
    "nonewprivs": {"Cmd": ["/usr/local/bin/nnp"]},
    "nonroot": {"User": "1234", "Cmd": ["sh"]},
    "sample-device-plugin": {"Entrypoint": ["/sample-device-plugin"], "Cmd": []},
    "nautilus": {"Cmd": ["/agnhost", "test-webserver"]},
    "nginx": {"Entrypoint": _WEB_SERVER, "Cmd": []},
    "httpd": {"Entrypoint": _WEB_SERVER, "Cmd": []},
}


def stand_ins(
    names: Iterable[str], programs: Path, certificate: Path, key: Path, tools: Sequence[str] = ()
) -> list[Image]:
    """An image for each of ``names`` that is in the tests' registry.

    ``programs``: the directory of the built programs; ``certificate`` and ``key``: of agnhost's
    HTTPS servers; ``tools``: further programs of this machine that the images have.
    Raises CommandError: a program of this machine is missing.
    """
    desired = sorted(name for name in names if name.startswith(f"{REGISTRY}/"))
    base = _everything(programs, (*_PROGRAMS, *tools))
    secrets = {"localhost.crt": certificate, "localhost.key": key}
    more = {name: (0o644, file.read_bytes()) for name, file in secrets.items()}
    base = replace(base, files={**base.files, **more})
    return [
        pause_image(name)
        if short_name(name) == "pause"
        else replace(base, name=name, config={**base.config, **_DEFAULTS.get(short_name(name), {})})
        for name in desired
    ]


def needed(listed: str) -> list[str]:
    """The names of `e2e.test --list-images` that tests of a node use, and one that it omits."""
    names = {line.strip() for line in listed.splitlines()}
    folder = rf"{re.escape(REGISTRY)}/(e2e-test-images/[^/]+|sig-storage/hostpathplugin|pause)$"
    return sorted(
        {name for name in names if re.match(folder, name.rpartition(":")[0])} | {_UNLISTED}
    )


def short_name(name: str) -> str:
    """The last part of an image's name, without its tag."""
    return name.rpartition("/")[2].partition(":")[0]


def _everything(programs: Path, tools: Sequence[str]) -> Image:
    base = busybox_image()
    files = {
        **base.files,
        "etc/passwd": (0o644, _USERS),
        "etc/group": (0o644, _GROUPS),
        "etc/os-release": (0o644, _SYSTEM),
        "data.json": (0o644, _DATA),
        **{
            name: (0o755, (programs / name).read_bytes())
            for name in ("agnhost", "hostpathplugin", "sample-device-plugin")
        },
        "usr/local/bin/nnp": (0o6755, (programs / "nonewprivs").read_bytes()),
    }
    for program in tools:
        files.update(with_libraries(program))
    files["bin/sh"] = (0o755, _SHELL)
    links = {**base.links, "agnhost-2": "agnhost"}
    for name in ("sh", *tools):
        links.pop(f"bin/{name}", None)
    return Image("", files, links, base.folders, base.config)


def with_libraries(program: str | Path) -> dict[str, tuple[int, bytes]]:
    """A program of this machine below bin/, and its libraries at the paths where it loads them.

    Raises CommandError: it is not installed.
    """
    found = shutil.which(program)
    if found is None:
        raise CommandError(f"{program} is not installed")
    files = {f"bin/{Path(program).name}": (0o755, Path(found).read_bytes())}
    for path in libraries(run("ldd", found).splitlines()):
        files[path.lstrip("/")] = (0o755, Path(path).read_bytes())
    return files


def libraries(lines: Sequence[str]) -> list[str]:
    """The paths in the output of ldd."""
    found = (re.search(r"(?:=> |^\s+)(/\S+)", line) for line in lines)
    return [match[1] for match in found if match]


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
