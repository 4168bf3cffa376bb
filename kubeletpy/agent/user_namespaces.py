"""Builds the ranges of user namespaces: a part of the composition root."""

from __future__ import annotations

from collections.abc import Callable

from kubeletpy.agent.component import Component
from kubeletpy.agent.context import BuildContext
from kubeletpy.config.problems import ConfigError, Problem
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.runtime_manager.act.settle_user_namespaces import settle_unknown_ranges
from kubeletpy.runtime_manager.act.user_namespaces import (
    UnusableIds,
    UserNamespaceRanges,
    subordinate_ids,
)


def build_user_namespaces(
    context: BuildContext, runtime_info: Callable[[], RuntimeInfo]
) -> tuple[UserNamespaceRanges, Component]:
    """``runtime_info``: what the runtime reports about itself now.

    Raises:
        ConfigError: the ids for pods can't be used.
    """
    settings = context.settings
    try:
        ranges = UserNamespaceRanges(
            context.root / "pods",
            supporting=lambda: runtime_info().handlers_with("userNamespaces"),
            max_pods=settings.max_pods,
            ids_per_pod=settings.user_namespaces.ids_per_pod,
            owned=subordinate_ids(),
        )
    except UnusableIds as error:
        raise ConfigError([Problem(error.source, "", str(error))]) from error
    component = Component(
        ranges,
        start=lambda: settle_unknown_ranges(ranges, context.outside.runtime),
        keep=lambda found: ranges.release_others(found.existing),
    )
    return ranges, component
