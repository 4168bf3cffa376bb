"""The record of devices and their holders, call by call."""

from __future__ import annotations

import pytest

from kubeletpy.resources.devices.model import (
    FORGOTTEN_AFTER_S,
    NO_NODE,
    Booking,
    DeviceHolder,
    DeviceRequest,
    DeviceState,
    PluginDevice,
    Reservation,
    allocatable,
    capacity,
    extended_resources,
    healthy_devices,
    nodes_by_device,
    resources_status,
)

GPU, NIC = "example.com/gpu", "example.com/nic"
A, B = DeviceHolder("pod-1", "a", GPU), DeviceHolder("pod-1", "b", GPU)
A_NIC, OTHER = DeviceHolder("pod-1", "a", NIC), DeviceHolder("pod-2", "a", GPU)


def booked(*ids: str) -> Booking:
    return Booking({NO_NODE: ids}, b"")


def reserved(holder: DeviceHolder, *ids: str) -> Reservation:
    return Reservation(DeviceRequest(holder, len(ids)), frozenset(ids))


def in_use() -> DeviceState:
    state = DeviceState()
    bookings = {OTHER: booked("g4"), B: booked("g3"), A_NIC: booked("n1"), A: booked("g1", "g2")}
    state.restored([GPU, NIC], bookings, 10.0)
    third = DeviceHolder("pod-3", "a", GPU)
    state.reserved = {third: reserved(third, "g5")}
    on_nic = DeviceHolder("pod-3", "a", NIC)
    state.reserved[on_nic] = reserved(on_nic, "n2")
    return state


def test_held_devices_are_of_one_resource() -> None:
    state = in_use()
    assert state.held_ids(GPU) == {"g1", "g2", "g3", "g4", "g5"}
    assert state.held_ids(NIC) == {"n1", "n2"}
    assert state.held_ids("example.com/none") == frozenset()


def test_devices_booked_or_reserved_for_a_container() -> None:
    state = in_use()
    assert state.ids_of(A) == {"g1", "g2"}
    assert state.ids_of(DeviceHolder("pod-3", "a", GPU)) == {"g5"}
    assert state.ids_of(DeviceHolder("pod-3", "b", GPU)) == frozenset()


def test_devices_of_containers_and_pods() -> None:
    state = in_use()
    assert list(state.of_container("pod-1", "a").items()) == [
        (GPU, booked("g1", "g2")),
        (NIC, booked("n1")),
    ]
    assert state.of_container("pod-2", "a") == {GPU: booked("g4")}
    assert state.of_container("pod-2", "b") == {}
    assert state.of_pod("pod-1") == {GPU: {"g1", "g2", "g3"}, NIC: {"n1"}}
    assert state.of_pod("pod-2") == {GPU: {"g4"}}
    assert state.of_pod("pod-3") == {}


@pytest.mark.parametrize(("name", "concerned"), [(GPU, True), (NIC, True), ("memory", False)])
def test_resources_of_plugins(name: str, concerned: bool) -> None:
    state = in_use()
    assert state.concerns(name) is concerned
    state.resources = {}
    assert state.concerns(name) is concerned, "a container has it"
    listed = DeviceState()
    listed.listed(GPU, [])
    assert listed.concerns(name) is (name == GPU)


def test_other_pods_lose_their_devices() -> None:
    state = in_use()
    state.release_others({"pod-2", "pod-3"})
    assert set(state.bookings) == {OTHER}
    assert {holder.uid for holder in state.reserved} == {"pod-3"}
    state.release_others(())
    assert not state.bookings
    assert not state.reserved


def test_device_updates_name_the_pods_that_hold_them() -> None:
    state = in_use()
    every = [PluginDevice(f"g{number}") for number in range(1, 6)]
    assert state.listed(GPU, every) == {"pod-1", "pod-2"}, "all are new"
    assert state.listed(GPU, every) == frozenset()
    sick = [PluginDevice("g4", "Unhealthy") if device.id == "g4" else device for device in every]
    assert state.listed(GPU, sick) == {"pod-2"}
    found = state.resources[GPU]
    assert found.healthy == {"g1", "g2", "g3", "g5"}
    assert found.unhealthy == {"g4"}
    assert state.listed(NIC, [PluginDevice("g4")]) == frozenset(), "another resource's device"


def test_two_resources_may_have_devices_of_one_id() -> None:
    """docs/reference/behaviour.md, u: ka41. Updates of one resource affect no pod of the other."""
    state = DeviceState()
    state.restored([GPU, NIC], {A: booked("0"), DeviceHolder("pod-2", "a", NIC): booked("0")}, 0.0)
    assert state.listed(GPU, [PluginDevice("0", "Healthy")]) == {"pod-1"}
    assert state.listed(NIC, [PluginDevice("0", "Healthy")]) == {"pod-2"}
    assert state.listed(NIC, [PluginDevice("0", "Unhealthy")]) == {"pod-2"}
    assert state.resources[GPU].healthy == {"0"}
    assert state.ids_of(A) == {"0"}


def test_a_resource_is_forgotten_when_its_plugin_has_stopped_for_long() -> None:
    state = DeviceState()
    assert state.expires_at() is None
    for name in (GPU, NIC, "example.com/disk"):
        state.listed(name, [PluginDevice("1")])
    assert state.expires_at() is None
    assert state.expire(1e9) == ()
    state.stopped(GPU, 20.0)
    state.stopped(NIC, 10.0)
    assert state.resources[GPU].healthy == frozenset()
    assert state.resources[GPU].unhealthy == {"1"}
    assert state.expires_at() == 10.0 + FORGOTTEN_AFTER_S
    assert state.expire(9.0 + FORGOTTEN_AFTER_S) == ()
    state.started(NIC)
    assert state.expires_at() == 20.0 + FORGOTTEN_AFTER_S
    assert state.expire(20.0 + FORGOTTEN_AFTER_S) == (GPU,)
    assert set(state.resources) == {NIC, "example.com/disk"}


def test_a_plugin_that_has_not_listed_yet_makes_no_resource() -> None:
    state = DeviceState()
    state.started(GPU)
    assert state.resources == {}
    state.stopped(GPU, 10.0)
    assert state.resources[GPU].stopped_at == 10.0
    state.started(GPU)
    assert state.resources[GPU].stopped_at is None


def test_topology_counts_if_any_device_has_a_node() -> None:
    state = DeviceState()
    state.listed(GPU, [PluginDevice("1"), PluginDevice("2")])
    assert not state.resources[GPU].has_topology
    state.listed(GPU, [PluginDevice("1"), PluginDevice("2", nodes=(0,))])
    assert state.resources[GPU].has_topology


# Devices as the node's status and metrics report them.


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
