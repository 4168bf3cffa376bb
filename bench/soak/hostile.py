"""Hostile pods of a soak, each with something that an API server accepts. Pure.

Their targets are described in docs/security.md. They are deleted like any other pod; their
annotation has the state that they reach when nobody touches them (:mod:`.pods`).
"""

from __future__ import annotations

import random
from collections.abc import Callable

from bench.manifests import NAMESPACE
from bench.soak.pods import ANY, FAILED, FOREVER, KILLED, READY, container, pod
from kubeletpy.base.api.types import JSON

BIG = "soak-big"
"""The configMap that :func:`_many_variables` reads."""
_REFERENCES = 60
_SCRATCH: JSON = {"name": "scratch", "emptyDir": {}}


def _flood(name: str, draw: random.Random) -> JSON:
    """20 MB of output at once, in lines or in none."""
    what = draw.choice(["yes 'a line of no interest'", "cat /dev/zero"])
    return pod(name, container(script=f"{what} | head -c 20000000; {FOREVER}"), steady=True)


def _last_words(name: str, _: random.Random) -> JSON:
    """A megabyte as the termination message, and as many in the log."""
    script = "yes m | head -c 1000000 | tee /dev/termination-log; exit 7"
    main = container(script=script, terminationMessagePolicy="FallbackToLogsOnError")
    return pod(name, main, codes={"main": [7]}, ends=FAILED, restartPolicy="Never")


def _many_references(name: str, _: random.Random) -> JSON:
    """More configMaps than pods of one owner usually have; none of them exists."""
    volumes = [
        {"name": f"v{n}", "configMap": {"name": f"soak-none-{n}", "optional": True}}
        for n in range(_REFERENCES)
    ]
    mounts = [{"name": f"v{n}", "mountPath": f"/v/{n}"} for n in range(_REFERENCES)]
    return pod(name, container(volumeMounts=mounts), volumes=volumes, steady=True)


def _many_variables(name: str, _: random.Random) -> JSON:
    main = container(envFrom=[{"configMapRef": {"name": BIG}}])
    return pod(name, main, steady=True)


def _odd_names(name: str, _: random.Random) -> JSON:
    """A subPath that ends a line for those who don't split at newlines only."""
    mounts = [
        {"name": "scratch", "mountPath": f"/v/{n}", "subPath": f"a{odd}b"}
        for n, odd in enumerate(("\u2028", "\u0085", "\v", "\x1c", " ", "%s", "\u202e"))
    ]
    return pod(name, container(volumeMounts=mounts), volumes=[_SCRATCH], steady=True)


def _large_fields(name: str, _: random.Random) -> JSON:
    """One large annotation, as a file again and again."""
    field: JSON = {"fieldRef": {"fieldPath": "metadata.annotations['soak/large']"}}
    items = [{"path": f"f{n}", **field} for n in range(8)]
    mounts = [{"name": "fields", "mountPath": "/f"}]
    made = pod(
        name,
        container(volumeMounts=mounts),
        volumes=[{"name": "fields", "downwardAPI": {"items": items}}],
        steady=True,
    )
    made["metadata"]["annotations"]["soak/large"] = "x" * 100_000
    return made


def _talking_probes(name: str, _: random.Random) -> JSON:
    """Probes whose output doesn't end before they do, and an HTTP answer of newlines."""
    answer = "printf 'HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n'; yes ''"
    talks = {"exec": {"command": ["/bin/sh", "-c", "yes | head -c 4000000"]}, "periodSeconds": 2}
    requests: JSON = {"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 2}
    serve = f'while :; do nc -l -p 8080 -e /bin/sh -c "{answer} | head -c 3000000"; done'
    trap = "trap 'exit 0' TERM;"
    main = container(
        script=f"{trap} ({serve}) & while :; do sleep 1000 & wait $!; done",
        readinessProbe=requests,
        livenessProbe=talks,
    )
    return pod(name, main, codes={"main": [0, KILLED]}, ends=ANY)


def _many_processes(name: str, _: random.Random) -> JSON:
    """Child processes without a parent that waits for them, most of them dead."""
    script = "for i in $(seq 150); do (sleep 0.1 &) ; done; for i in $(seq 40); do sleep 900 & done"
    return pod(name, container(script=f"{script}; {FOREVER}"), steady=True)


def _deep(name: str, _: random.Random) -> JSON:
    """A directory below itself, and links that lead out."""
    script = (
        "cd /v; for i in $(seq 200); do mkdir dddddddd; cd dddddddd; done; "
        "ln -s /etc/shadow link; ln -s / root; mkfifo pipe; chmod 000 .; "
    )
    mounts = [{"name": "scratch", "mountPath": "/v"}]
    made = pod(name, container(script=script + FOREVER, volumeMounts=mounts), steady=True)
    made["spec"]["volumes"] = [_SCRATCH]
    return made


def _large_hooks(name: str, _: random.Random) -> JSON:
    """A command so long that it must not travel with each list of the runtime."""
    stop: JSON = {"preStop": {"exec": {"command": ["/bin/true", "x" * 100_000]}}}
    return pod(name, container(lifecycle=stop), ends=READY, steady=True)


HOSTILE: dict[str, tuple[int, Callable[[str, random.Random], JSON]]] = {
    "flood": (1, _flood),
    "last-words": (2, _last_words),
    "many-references": (1, _many_references),
    "many-variables": (1, _many_variables),
    "odd-names": (2, _odd_names),
    "large-fields": (1, _large_fields),
    "talking-probes": (1, _talking_probes),
    "many-processes": (1, _many_processes),
    "deep": (2, _deep),
    "large-hooks": (2, _large_hooks),
}
"""Weight of each kind of pod, and the function that makes it."""


def big_object() -> JSON:
    """A configMap of 2,500 variables."""
    meta = {"name": BIG, "namespace": NAMESPACE}
    return {"metadata": meta, "data": {f"VARIABLE_{n}": "v" * 20 for n in range(2500)}}
