"""Changes of a config that require another container, and those that do not."""

from __future__ import annotations

from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.names import CONFIG_HASH, config_hash

WORDS = "/dev/termination-log"
MANY = {f"key-{number}": "x" for number in range(20)}


def config(parts: str = "/pods/1", **fields: object) -> cri.ContainerConfig:
    made = cri.ContainerConfig(**fields)  # type: ignore[arg-type]
    made.mounts.add(container_path=WORDS, host_path=parts)
    made.mounts.add(container_path="/data", host_path="/volumes/data")
    return made


def test_the_hash() -> None:
    plain = config_hash(config(), WORDS)
    assert config_hash(config("/pods/2"), WORDS) == plain
    assert config_hash(config(annotations={CONFIG_HASH: plain}), WORDS) == plain
    backwards = config(annotations=dict(reversed(MANY.items())))
    assert config_hash(config(annotations=MANY), WORDS) == config_hash(backwards, WORDS)
    elsewhere = config()
    elsewhere.mounts[1].host_path = "/volumes/other"
    others = [
        elsewhere,
        config(annotations={"a": "b"}),
        config(envs=[cri.KeyValue(key="a", value=b"b")]),
        config(log_path="a/1.log"),
    ]
    assert len({plain, *(config_hash(each, WORDS) for each in others)}) == 5
    assert config_hash(config("/pods/2"), "") != config_hash(config("/pods/1"), "")
