"""What the API passes on to the node's own server, and how much the node uses."""
