"""The ways to query a container: run a command in it, HTTP, TCP, gRPC.

Probes and lifecycle hooks share them. They do not decide what an answer means.
"""
