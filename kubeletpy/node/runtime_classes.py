"""Resolves a RuntimeClass to its runtime handler, with an API request for each new sandbox."""

from __future__ import annotations

from kubeletpy.kubeapi.errors import ApiError, NotFound
from kubeletpy.kubeapi.protocol import RUNTIMECLASSES, KubeApi
from kubeletpy.pods.config_errors import RuntimeClassError
from kubeletpy.pods.pod import Pod


class RuntimeClassHandlers:
    """Looks up RuntimeClasses by name."""

    def __init__(self, kube_api: KubeApi | None) -> None:
        """Without an API (standalone) there are no RuntimeClasses."""
        self._api = kube_api

    async def handler(self, pod: Pod) -> str:
        """The CRI runtime handler for a pod's sandbox; "" is the runtime's default.

        Raises:
            RuntimeClassError: the class does not exist, or could not be read.
        """
        name = pod.spec.get("runtimeClassName")
        if not name:
            return ""
        if self._api is None:
            raise RuntimeClassError(f'RuntimeClass "{name}" cannot be read without an API')
        try:
            found = await self._api.get(RUNTIMECLASSES, name)
        except NotFound as error:
            raise RuntimeClassError(f'RuntimeClass "{name}" not found') from error
        except ApiError as error:
            raise RuntimeClassError(f'RuntimeClass "{name}" could not be read: {error}') from error
        return str(found.get("handler") or "")
