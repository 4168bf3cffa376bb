"""What the node, its pods and containers use: read when somebody asks, shown in three shapes.

``usage`` are the words; ``collector`` reads, ``summary``, ``cadvisor`` and ``resource`` show. Must
never collect anything when nobody asks.
"""
