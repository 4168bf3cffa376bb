"""What the API hands to the node's own server, and how much it uses."""
