"""Device plugins that register as CSI drivers do, over a socket in plugins_registry.

Source: docs/reference/behaviour-resources.md, rm, rn.
"""

from __future__ import annotations

from kubeletpy.resources.devices.names import RegistrationRefused, check_resource, check_version
from kubeletpy.resources.devices.registration import DevicePlugins
from kubeletpy.resources.plugins.model import PluginInfo
from kubeletpy.resources.plugins.protocol import PluginRefused


class DevicePluginHandler:
    """The handler of type DevicePlugin."""

    def __init__(self, devices: DevicePlugins) -> None:
        self._devices = devices

    def validate(self, info: PluginInfo) -> None:
        """Raise PluginRefused when this plugin cannot be used."""
        try:
            check_version(info.versions)
            check_resource(info.name)
        except RegistrationRefused as error:
            raise PluginRefused(f"device plugin {info.name}: {error}") from None

    async def register(self, info: PluginInfo) -> None:
        """Offer its devices from now on; raises PluginRefused."""
        try:
            await self._devices.register(info.name, info.endpoint)
        except RegistrationRefused as error:
            raise PluginRefused(str(error)) from None

    async def deregister(self, info: PluginInfo) -> None:
        """Stop offering them, unless another plugin has the resource."""
        await self._devices.deregister(info.name, info.endpoint)
