"""Tests of kubeletpy.view."""
