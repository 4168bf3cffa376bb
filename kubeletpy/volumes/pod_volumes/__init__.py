"""Volumes that the agent makes itself: emptyDir, configMap, secret, downwardAPI, projected."""
