"""Why a pod is in its state: gathered from the components, served on a socket, rendered as text."""
