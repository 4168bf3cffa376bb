"""From a pod's claims to volumes: what each one is, or why it is not available yet."""
