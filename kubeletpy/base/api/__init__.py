"""Types and vocabulary of the Kubernetes API.

Pure: so is every module here.
"""
