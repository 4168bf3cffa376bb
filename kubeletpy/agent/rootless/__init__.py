"""A node of real containers for a login user: what is possible here, the namespaces, containerd.

Nobody has to prepare the machine. :mod:`.possible` decides from facts (pure), :mod:`.machine` finds
them and the programs, :mod:`.namespaces` holds the node, :mod:`.containerd` runs in them.
"""
