"""Why a pod is as it is: gathered from the rooms, served on a socket, rendered for people."""
