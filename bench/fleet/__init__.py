"""A fleet of complete agents on virtual time against one API server that counts their requests.

``python -m bench.fleet`` makes the figures of docs/fleet.md, ``python -m bench.fleet.page`` its
tables and plots. Each agent is the product from its API client up; the wire, the runtime and the
server's limits are simulated.
"""
