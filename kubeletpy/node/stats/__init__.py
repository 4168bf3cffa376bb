"""Resource usage of the node, its pods and containers: read on demand, served in three formats.

``usage`` holds the data types; ``collector`` reads; ``summary``, ``cadvisor`` and ``scrapes``
format. Must never collect anything unless requested.
"""
