"""The pod resources API: reports the devices of this node's containers to local programs.

``answers`` makes the messages (pure), ``server`` serves them on a socket. Source:
docs/reference/behaviour-resources.md, rw.
"""
