"""Builds credential providers from flags: their configuration and their programs.

Must never run one.
"""

from __future__ import annotations

from pathlib import Path

from kubeletpy.base.host.program import Program, run_program
from kubeletpy.config import ConfigError, KubeletSettings, NodeFlags, Problem
from kubeletpy.config.credential_providers import TOKENS_GATE, load_credential_providers
from kubeletpy.config.files import (
    BIN_DIR_FLAG,
    FLAG,
    check_programs,
    read_credential_provider_files,
)
from kubeletpy.images.providers.accounts import ServiceAccounts
from kubeletpy.images.providers.plugins import Plugins
from kubeletpy.images.providers.provider import Provider
from kubeletpy.metrics.image_credentials import CredentialProviderMetrics


def providers_from_flags(
    settings: KubeletSettings,
    flags: NodeFlags,
    accounts: ServiceAccounts,
    metrics: CredentialProviderMetrics,
) -> Plugins:
    """The providers that the flags name; they name at least one.

    Raises:
        ConfigError: one flag without the other, a bad configuration, or a missing program.
    """
    path, bin_dir = flags.image_credential_provider_config, flags.image_credential_provider_bin_dir
    for flag, value, other in ((FLAG, path, BIN_DIR_FLAG), (BIN_DIR_FLAG, bin_dir, FLAG)):
        if not value:
            raise ConfigError([Problem(flag, "", f"is needed with {other}")])
    config = load_credential_providers(
        read_credential_provider_files(path), token_gate=settings.feature_gates.enabled(TOKENS_GATE)
    )
    check_programs(bin_dir, tuple(provider.name for provider in config.providers))
    metrics.configured(config.config_hash)
    directory = Path(bin_dir).resolve()
    return Plugins(
        [
            Provider(
                provider,
                Program(
                    str(directory / provider.name),
                    provider.args,
                    {variable.name: variable.value for variable in provider.env},
                ),
                run_program,
                accounts,
                metrics,
            )
            for provider in config.providers
        ]
    )
