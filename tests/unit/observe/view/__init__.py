"""Tests of kubeletpy.observe.view."""
