"""Keeps the machine healthy: kernel settings, own process, daemons, iptables, OOM reports.

A setting that the machine does not allow is logged once, and the agent goes on: except for
``protectKernelDefaults``, nothing here keeps the agent from starting.
"""
