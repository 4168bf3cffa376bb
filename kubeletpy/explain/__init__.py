"""Why a pod is in its state: gathered from the rooms, served on a socket, rendered for people."""
