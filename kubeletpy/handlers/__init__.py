"""The ways to ask a container something: run a command in it, HTTP, TCP, gRPC.

Probes and lifecycle hooks share them. What an answer means is not decided here.
"""
