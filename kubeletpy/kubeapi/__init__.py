"""The Kubernetes API: a Protocol, its errors, the real client, list and watch, objects, Events."""
