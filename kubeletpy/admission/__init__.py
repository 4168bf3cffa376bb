"""Whether a node admits a pod, and who gives way.

Pure: so is every module here.
"""
