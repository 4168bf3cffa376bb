"""The agent as a node of a real control plane: built and started by tools.control_plane."""
