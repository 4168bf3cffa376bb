"""Talking to the Kubernetes API: a Protocol, its errors, the real client, list+watch, Events."""
