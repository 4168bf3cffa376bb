"""Fakes of each border, builders of each package's inputs, and measures, shared by all tests."""
