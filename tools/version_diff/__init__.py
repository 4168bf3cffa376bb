"""Differences between two Kubernetes versions, as rows ready for the fact tables."""
