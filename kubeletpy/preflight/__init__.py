"""What would happen if this agent took over a node from its kubelet: ``kubeletpy preflight``.

Reads only. It finds the kubelet's command line (a running process, a systemd unit with drop-ins, or
flags of the user), reads its settings with the agent's own loaders, and reports findings and one
verdict for each pod. Nothing here is loaded by a running agent.

Pure parts: ``findings`` and ``render`` (the report as values, text and JSON), ``unit_file`` and
``command_line`` (from the text of unit files to a command line), ``choice`` (which kubelet is
meant). Edges: ``unit_paths`` and ``processes`` read the machine, ``settings`` loads the
configuration, ``gather`` calls them in order.

A finding never quotes a secret. Whatever can't be read or judged is a finding too, of severity
``unclear``: then the exit code is not 0.
"""
