"""What keeps the machine itself well: kernel settings, the agent's own process, cgroups of daemons,
iptables chains, and news of the kernel's OOM killer.

What a machine does not allow is named once in the log, and the agent goes on: but for
``protectKernelDefaults``, nothing here keeps an agent from starting.
"""
