"""How fast and how cheap the agent is on a real containerd, compared to the floor of the same run.

The floor is the same CRI calls and API writes made directly, without an agent: what no agent can
beat on this machine. ``python -m bench --help``; read with docs/benchmarks.md. Must never be
imported by the agent.
"""
