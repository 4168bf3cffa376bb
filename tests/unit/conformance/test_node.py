"""Setup shared by the nodes under test."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509

from tools.conformance.node import Setup
from tools.control_plane.plane import ControlPlane
from tools.env.images import Image
from tools.lab.network import HOST

IMAGES = [Image("registry.k8s.io/e2e-test-images/agnhost:2", {}), Image("registry/pause:3", {})]


def _setup(directory: Path) -> Setup:
    plane = ControlPlane(directory / "plane", directory, HOST)
    return Setup(directory, directory, plane, IMAGES, "http://10.99.0.1:5000", {"A": True})


def test_an_agent_trusts_its_control_plane_and_has_the_fields_of_its_node(tmp_path: Path) -> None:
    setup = _setup(tmp_path)
    config = setup.kubelet_config(cgroupDriver="systemd")
    assert config["authentication"] == {"x509": {"clientCAFile": str(setup.plane.authority.ca)}}
    assert config["featureGates"] == {"A": True}
    assert config["cgroupDriver"] == "systemd"


def test_a_virtual_node_reaches_the_control_plane_by_the_address_in_its_certificate(
    tmp_path: Path,
) -> None:
    plane = _setup(tmp_path).plane
    assert plane.url == f"https://{HOST}:{plane.port}"
    pem = (plane.authority.directory / "server.crt").read_bytes()
    names = x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    addresses = names.value.get_values_for_type(x509.IPAddress)
    assert HOST in map(str, addresses)


def test_the_sandbox_image_is_the_pause_image_of_the_tests(tmp_path: Path) -> None:
    assert _setup(tmp_path).sandbox_image == "registry/pause:3"


def test_images_of_the_tests_registry_are_pulled_from_the_mirror(tmp_path: Path) -> None:
    _setup(tmp_path).write_mirror(tmp_path / "certs.d")
    text = (tmp_path / "certs.d" / "registry.k8s.io" / "hosts.toml").read_text()
    assert '[host."http://10.99.0.1:5000"]' in text
