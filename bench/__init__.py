"""Benchmarks of the agent on a real containerd: speed and cost, compared to a floor.

The floor is the same CRI calls and API writes made directly, without an agent, in the same run: no
agent can be faster on this machine. ``python -m bench --help``; read with docs/benchmarks.md. Must
never be imported by the agent.
"""
