"""Keeps the machine itself well: kernel settings, own process, daemons, iptables, OOM reports.

What a machine does not allow is logged once, and the agent goes on: except for
``protectKernelDefaults``, nothing here keeps the agent from starting.
"""
