"""Settings for drawing examples of properties."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# how long an example takes on a busy machine, or the first text at all, is not what is tested
settings.register_profile("unit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")
