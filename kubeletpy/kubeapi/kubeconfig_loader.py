"""A program: reads a kubeconfig with the official client's own loader and states what it found.

It is a separate process because the loader imports the whole client: 18 MB that an agent would
carry for the sake of one file. Prints one line of JSON, then waits until its input ends: files that
the loader made from inline data exist until then. Must never import kubeletpy, nor write anywhere
but to its output: it handles credentials.
"""

import gc
import json
import logging
import os
import sys
from typing import Any

_MALFORMED = (TypeError, ValueError, AttributeError)
"""Exceptions of the loader when parts of a kubeconfig have unexpected types."""


class Stated(logging.Handler):
    """Keeps what the loader logs: a failed exec plugin is reported only there."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def load(path: str) -> dict[str, Any]:
    """The settings of a kubeconfig's current context, or ``error``."""
    import yaml
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, kube_config

    configuration = Configuration()
    untyped: Any = kube_config
    try:
        config = untyped.KubeConfigMerger(path).config
        # None: paths are relative to the file
        loader = untyped.KubeConfigLoader(config, config_base_path=None)
        loader.load_and_set(configuration)
    except (ConfigException, yaml.YAMLError, OSError, LookupError, *_MALFORMED) as error:
        # Only the error's type and text from the loader: it names keys and files, not values.
        return {"error": f"{type(error).__name__}: {error}"}
    return {
        "host": configuration.host,
        "ca_file": configuration.ssl_ca_cert,
        "ca_data": configuration.ca_cert_data,
        "cert_file": configuration.cert_file,
        "key_file": configuration.key_file,
        "verify": configuration.verify_ssl,
        "authorization": configuration.api_key.get("BearerToken", ""),
        "server_hostname": configuration.tls_server_name or "",
        "proxy": getattr(loader, "proxy", ""),  # the configuration has the environment's as well
        "exec_plugin": "exec" in (loader._user or {}),
    }


def main() -> None:
    """Entry point; arguments: the file's path, then the directories to import from, if any."""
    path, *search_path = sys.argv[1:]
    sys.path[:] = search_path or sys.path
    gc.disable()  # a fifth of its time, and it ends soon
    stated = Stated()
    logging.getLogger().addHandler(stated)
    found = load(path)
    line = json.dumps({**found, "said": stated.lines}) + "\n"
    try:
        os.write(sys.stdout.fileno(), line.encode())
    except BrokenPipeError:
        return  # the agent has ended meanwhile
    sys.stdin.read()


if __name__ == "__main__":
    main()
