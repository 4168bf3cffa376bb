"""Devices as the node's status and metrics report them."""

from __future__ import annotations

from kubeletpy.resources.devices.model import (
    NO_NODE,
    Booking,
    DeviceHolder,
    DeviceState,
    PluginDevice,
    allocatable,
    capacity,
    extended_resources,
    healthy_devices,
    nodes_by_device,
    resources_status,
)

GPU, NIC = "example.com/gpu", "example.com/nic"


def node() -> DeviceState:
    state = DeviceState()
    state.listed(
        GPU, [PluginDevice("g0", nodes=(0, 1)), PluginDevice("g1"), PluginDevice("g2", "Sick")]
    )
    state.listed(NIC, [PluginDevice("n0", "Unhealthy")])
    return state


def test_devices_are_counted_and_the_healthy_ones_named() -> None:
    assert capacity(node()) == {GPU: 3, NIC: 1}
    assert allocatable(node()) == {GPU: 2, NIC: 0}
    assert healthy_devices(node()) == {GPU: {"g0": (0, 1), "g1": ()}}


def test_which_resources_are_extended() -> None:
    names = ("cpu", GPU, "kubernetes.io/x", "node.kubernetes.io/x", "hugepages-2Mi")
    assert extended_resources(names) == {GPU}


def test_the_nodes_that_the_devices_of_a_booking_are_near() -> None:
    booking = Booking({0: ("g0", "g3"), NO_NODE: ("g1",), 1: ("g0",)}, b"")
    assert nodes_by_device(booking) == {"g0": (0, 1), "g3": (0,), "g1": ()}


def test_the_health_of_a_pods_devices() -> None:
    state = node()
    state.bookings = {
        DeviceHolder("uid-a", "main", NIC): Booking({NO_NODE: ("n0",)}, b""),
        DeviceHolder("uid-a", "main", GPU): Booking({0: ("g0", "removed"), NO_NODE: ("g2",)}, b""),
        DeviceHolder("uid-a", "side", "example.com/fpga"): Booking({NO_NODE: ("f0",)}, b""),
        DeviceHolder("uid-b", "main", GPU): Booking({NO_NODE: ("g1",)}, b""),
    }

    def reported(name: str, **health: str) -> object:
        resources = [{"resourceID": each, "health": health[each]} for each in sorted(health)]
        return {"name": name, "resources": resources}

    assert resources_status(state, "uid-a") == {
        "main": [
            reported(GPU, g0="Healthy", g2="Unhealthy", removed="Healthy"),
            reported(NIC, n0="Unhealthy"),
        ],
        "side": [reported("example.com/fpga", f0="Healthy")],
    }
    assert resources_status(state, "uid-c") == {}
