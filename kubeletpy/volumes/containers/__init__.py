"""Inputs of a container that starts: mounts, environment variables, the hosts file."""
