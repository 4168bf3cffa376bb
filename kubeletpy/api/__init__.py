"""The Kubernetes API's types and words.

Pure: so is every module here.
"""
