"""Flags are read as Go programs read them."""

from __future__ import annotations

import pytest

from kubeletpy import config


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--max-pods", "5"], "maxPods", 5),
        (["--max-pods=0x10"], "maxPods", 16),
        (["--max_pods=5"], "maxPods", 5),
        (["--max-pods=5", "--max-pods=6"], "maxPods", 6),
        (["-v", "3"], "logging.verbosity", 3),
        (["-v=3"], "logging.verbosity", 3),
        (["-v3"], "logging.verbosity", 3),
        (["--v=3"], "logging.verbosity", 3),
        (["--fail-swap-on=F"], "failSwapOn", False),
        (["--fail-swap-on"], "failSwapOn", True),
        (["--cluster-dns=1.1.1.1,2.2.2.2", "--cluster-dns", "3.3.3.3"], "clusterDNS",
         ["1.1.1.1", "2.2.2.2", "3.3.3.3"]),
        (["--enforce-node-allocatable="], "enforceNodeAllocatable", []),
        (["--eviction-hard=memory.available<1Gi,nodefs.available<5%"], "evictionHard",
         {"memory.available": "1Gi", "nodefs.available": "5%"}),
        (["--register-with-taints=a/b=c:NoSchedule,d=:NoExecute,e:NoSchedule"],
         "registerWithTaints",
         [{"key": "a/b", "value": "c", "effect": "NoSchedule"},
          {"key": "d", "value": "", "effect": "NoExecute"},
          {"key": "e", "value": "", "effect": "NoSchedule"}]),
        (["--reserved-memory", "0:memory=1Gi,hugepages-1Gi=2Gi", "--reserved-memory=1:memory=2Gi"],
         "reservedMemory",
         [{"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-1Gi": "2Gi"}},
          {"numaNode": 1, "limits": {"memory": "2Gi"}}]),
        (["--manifest-url-header=a:b,a:c"], "staticPodURLHeader", {"a": ["b", "c"]}),
        (["--vmodule=x*=3"], "logging.vmodule", [{"filePattern": "x*", "verbosity": 3}]),
        (["--max-pods", "-5"], "maxPods", -5),
        (["-v", "3", "-v4"], "logging.verbosity", 4),
        (["--v", "3"], "logging.verbosity", 3),
        (["--eviction-minimum-reclaim= memory.available = 1Gi , "], "evictionMinimumReclaim",
         {"memory.available": "1Gi"}),
        (["--feature-gates=A=true,B=F", "--feature-gates=C=1"], "featureGates",
         {"A": True, "B": False, "C": True}),
        (["--reserved-memory=0:memory=1Gi;1:memory=2Gi; "], "reservedMemory",
         [{"numaNode": 0, "limits": {"memory": "1Gi"}},
          {"numaNode": 1, "limits": {"memory": "2Gi"}}]),
        (["--manifest-url-header= a : b "], "staticPodURLHeader", {"a": ["b"]}),
        (["--fail-swap-on=false", "--fail-swap-on=t"], "failSwapOn", True),
        (["--fail-swap-on=t", "--fail-swap-on=0"], "failSwapOn", False),
    ],
)  # fmt: skip
def test_forms(arguments: list[str], field: str, value: object) -> None:
    assert config.parse_flags(arguments).fields[field].value == value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-pod=5"], "--max-pod: no such flag; did you mean --max-pods?"),
        (["-x"], "-x: no such flag"),
        (["run"], "run: is not a flag"),
        (["--", "a"], "a: is not a flag"),
        (["--max-pods"], "--max-pods: needs a value"),
        (["--max-pods=a"], '--max-pods is "a": must be a whole number'),
        (["--fail-swap-on=maybe"], "must be true or false"),
        (["--kube-reserved=cpu"], "must be like key=value"),
        (["--eviction-hard=memory.available=5"], "must be like memory.available<100Mi"),
        (["--register-with-taints=a"], "must be like key=value:NoSchedule"),
        (["--manifest-url-header=Authorization"], "<masked>"),
        (["-"], "-: is not a flag"),
        (["-v"], "--v: needs a value"),
        (["-max-pods=5"], "-max-pods: no such flag"),
        (["--nonsense-of-a-flag", "value"], "--nonsense-of-a-flag: no such flag"),
        (["--nonsense-of-a-flag=value"], "--nonsense-of-a-flag: no such flag"),
        (["--nonsense-of-a-flag"], "--nonsense-of-a-flag: no such flag"),
        (["--nonsense-of-a-flag", "--max-pods=5"], "--nonsense-of-a-flag: no such flag"),
        (["--kube-reserved==5"], "must be like key=value"),
        (["--reserved-memory=0"], "must be like 0:memory=1Gi,hugepages-1Gi=2Gi"),
        (["--reserved-memory=a:memory=1Gi"], "must be like 0:memory=1Gi,hugepages-1Gi=2Gi"),
        (["--minimum-container-ttl-duration=5"], "must be a duration such as 10s or 1m30s"),
        (["--version=maybe"], "must be true, false or raw"),
        (["--exit-on-lock-contention"], "needs --lock-file"),
        (["--node-labels=node-role.kubernetes.io/x="], "may not give itself"),
        (["--node-labels=a b=c"], "is not a label key"),
        (["--node-ip=foo"], '--node-ip is "foo": must be an IP address'),
        (["--node-ip=,"], '--node-ip is ",": must be an IP address'),
        (["--node-ip=10.0.0.1,10.0.0.2"], "an IPv4 and an IPv6 address"),
        (["--node-ip=10.0.0.1,fd00::1,fd00::2"], "an IPv4 and an IPv6 address"),
        (["--node-ip=0.0.0.0,::"], "stand alone"),
        (["--node-ip=fe80::1%eth0"], '--node-ip is "fe80::1%eth0": must be an IP address'),
        (["--node-ip=10.0.0.1,::ffff:10.0.0.2"], "an IPv4 and an IPv6 address"),
        (["--hostname-override=my_host"], '--hostname-override is "my_host"'),
        (["--hostname-override=-a"], "must be a node's name"),
        (["--hostname-override=" + "a" * 254], "must be a node's name"),
    ],
)
def test_errors(arguments: list[str], message: str) -> None:
    with pytest.raises(config.ConfigError) as caught:
        config.parse_flags(arguments)
    assert len(caught.value.problems) == 1
    assert message in str(caught.value)


def test_node_flags() -> None:
    labels = "a=b,kubernetes.io/arch=x,node.kubernetes.io/x=y,my.kubelet.kubernetes.io/z="
    node = config.parse_flags(
        ["--kubeconfig=/k", f"--node-labels={labels}", "--hostname-override", "n"]
    ).node
    assert (node.kubeconfig, node.hostname_override, len(node.node_labels)) == ("/k", "n", 4)
    assert node.root_dir == "/var/lib/kubelet"


def test_warnings() -> None:
    flags = config.parse_flags(["--max-pods=5", "--containerd=/x", "--v=2"])
    assert flags.warnings == (
        "flag --max-pods is deprecated: set maxPods in the file given to --config",
    )
    assert flags.ignored == {"containerd": "/x"}


@pytest.mark.parametrize(
    "flag",
    [
        "--node-ip=10.0.0.1",
        "--node-ip=fd00::1",
        "--node-ip=10.0.0.1, fd00::1",
        "--node-ip=fd00::1,10.0.0.1",
        "--node-ip=0.0.0.0",
        "--node-ip=::",
        "--node-ip=",
        "--hostname-override= Node-1.Example ",
        "--hostname-override=",
    ],
)
def test_names_and_addresses_of_a_node(flag: str) -> None:
    name, _, value = flag.removeprefix("--").partition("=")
    assert getattr(config.parse_flags([flag]).node, name.replace("-", "_")) == value


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        (["a", "--max-pods=b", "-", "--x=1", "c"], ["a", "-", "--x", "c", "--max-pods"]),
        (["--max-pods=5", "--", "a", "--b"], ["a", "--b"]),
        (["--nonsense-of-a-flag=1", "value"], ["--nonsense-of-a-flag", "value"]),
        (["--fail-swap-on", "false"], ["false"]),
        (["--version", "raw"], ["raw"]),
    ],
)
def test_all_errors_at_once(arguments: list[str], problems: list[str]) -> None:
    with pytest.raises(config.ConfigError) as caught:
        config.parse_flags(arguments)
    assert [problem.field for problem in caught.value.problems] == problems


@pytest.mark.parametrize(
    ("argument", "version"),
    [
        ("--version", "true"),
        ("--version=1", "true"),
        ("--version=raw", "raw"),
        ("--version=false", ""),
    ],
)
def test_the_version(argument: str, version: str) -> None:
    assert config.parse_flags([argument]).node.version == version


@pytest.mark.parametrize(
    ("flag", "warnings"),
    [
        ("--max-pods=5",
         ["flag --max-pods is deprecated: set maxPods in the file given to --config"]),
        ("--minimum-container-ttl-duration=5s",
         ["flag --minimum-container-ttl-duration is deprecated"]),
        ("--node-ip=::", []),
        ("--containerd=x", []),
    ],
)  # fmt: skip
def test_each_deprecated_flag_is_reported(flag: str, warnings: list[str]) -> None:
    assert list(config.parse_flags([flag]).warnings) == warnings
