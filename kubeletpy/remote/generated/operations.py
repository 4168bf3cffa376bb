"""The calls of the CRI in metrics. Pure.

Written by tools/gen_tables.py. Source: docs/reference/cri-v1.json.
"""

from __future__ import annotations

OPERATIONS = {
    "Version": "version",
    "RunPodSandbox": "run_podsandbox",
    "StopPodSandbox": "stop_podsandbox",
    "RemovePodSandbox": "remove_podsandbox",
    "PodSandboxStatus": "podsandbox_status",
    "ListPodSandbox": "list_podsandbox",
    "StreamPodSandboxes": "list_podsandbox",
    "CreateContainer": "create_container",
    "StartContainer": "start_container",
    "StopContainer": "stop_container",
    "RemoveContainer": "remove_container",
    "ListContainers": "list_containers",
    "StreamContainers": "list_containers",
    "ContainerStatus": "container_status",
    "UpdateContainerResources": "update_container",
    "ReopenContainerLog": "reopen_container_log",
    "ExecSync": "exec_sync",
    "Exec": "exec",
    "Attach": "attach",
    "PortForward": "port_forward",
    "ContainerStats": "container_stats",
    "ListContainerStats": "list_container_stats",
    "StreamContainerStats": "list_container_stats",
    "PodSandboxStats": "podsandbox_stats",
    "ListPodSandboxStats": "list_podsandbox_stats",
    "StreamPodSandboxStats": "list_podsandbox_stats",
    "UpdateRuntimeConfig": "update_runtime_config",
    "Status": "status",
    "CheckpointContainer": "checkpoint_container",
    "GetContainerEvents": "get_container_events",
    "ListMetricDescriptors": "list_metric_descriptors",
    "ListPodSandboxMetrics": "list_podsandbox_metrics",
    "StreamPodSandboxMetrics": "list_podsandbox_metrics",
    "RuntimeConfig": "runtime_config",
    "UpdatePodSandboxResources": "update_podsandbox_resources",
    "ListImages": "list_images",
    "StreamImages": "list_images",
    "ImageStatus": "image_status",
    "PullImage": "pull_image",
    "RemoveImage": "remove_image",
    "ImageFsInfo": "image_fs_info",
}
"""The kubelet's operation_type of each call. Streams count as lists."""
