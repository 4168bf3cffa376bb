"""Predicts a takeover of the node from its kubelet by this agent: ``kubeletpy preflight``.

Reads only. It finds the kubelet's command line (a running process, a systemd unit with drop-ins, or
flags of the user). It reads the kubelet's settings and state with the agent's own code, and
computes the plan of the agent's first sync for each pod. The result is a report: findings, and one
verdict for each pod. Nothing here is loaded by a running agent.

Pure parts: ``findings`` is the report as values, text and JSON. ``unit_command`` leads from a unit
to a command line. ``checks`` selects the kubelet, and judges its runtime and its versions.
``state_files`` judges the texts of state files. Edges: ``kubelets`` reads units and processes,
``settings`` loads settings, state and credentials, ``placement`` tries positions.
``node`` queries the API server and the runtime. ``gather`` calls them in order.

A finding never quotes a secret. Whatever can't be read or judged is a finding of severity
``unclear``, or a pod of that outcome: then the exit code is not 0.
"""
