"""The initial RAM disk of a kernel under QEMU."""

from __future__ import annotations

from tools.lab.kernel import INIT, MODULES_TAG, NEEDED, cpio, kernel_packages, load_order

DEPENDENCIES = """\
kernel/fs/ext4/ext4.ko.xz: kernel/fs/jbd2/jbd2.ko.xz kernel/lib/crc16.ko.xz
kernel/fs/jbd2/jbd2.ko.xz: kernel/lib/crc16.ko.xz
kernel/lib/crc16.ko.xz:
kernel/drivers/virtio/virtio_pci.ko:
"""


def test_a_kernel_is_in_one_package_or_in_three() -> None:
    image = "linux-image-6.1.0-50-amd64"
    assert kernel_packages(image) == ("6.1.0-50-amd64", [image])
    version = "7.2.12+deb14-amd64"
    parts = [f"linux-{part}-{version}" for part in ("base", "binary", "modules")]
    assert kernel_packages(f"linux-base-{version}") == (version, parts)


def test_modules_are_loaded_after_those_they_depend_on() -> None:
    assert load_order(DEPENDENCIES, ["virtio_pci", "ext4", "jbd2"]) == [
        "kernel/drivers/virtio/virtio_pci.ko",
        "kernel/lib/crc16.ko.xz",
        "kernel/fs/jbd2/jbd2.ko.xz",
        "kernel/fs/ext4/ext4.ko.xz",
    ]


def test_modules_that_are_built_in_are_left_out() -> None:
    assert load_order(DEPENDENCIES, ["crc32c_generic"]) == []
    assert load_order("", NEEDED) == []


def test_an_archive_has_modes_names_and_contents_at_multiples_of_four() -> None:
    files = {"bin": (0o040755, b""), "bin/sh": (0o120777, b"busybox"), "init": (0o100755, b"#!")}
    archive = cpio(files)
    found, at = {}, 0
    while at < len(archive):
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        mode, size, length = fields[1], fields[6], fields[11]
        name = archive[at + 110 : at + 110 + length]
        assert name.endswith(b"\0")
        at += -(-(110 + length) // 4) * 4
        found[name[:-1].decode()] = (mode, archive[at : at + size])
        at += -(-size // 4) * 4
    assert at == len(archive)
    assert found == {**files, "TRAILER!!!": (0, b"")}


def test_the_first_program_takes_modules_from_the_host() -> None:
    assert f"ro,cache=loose {MODULES_TAG} " in INIT
    assert INIT.endswith("exec switch_root /root /sbin/init\n")
