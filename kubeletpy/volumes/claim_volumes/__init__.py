"""Claim-backed volumes of pods: their objects are read, resolved, and set up by operations."""
