"""Why a pod is as it is: gathered from the rooms, told on a socket, rendered for people."""
