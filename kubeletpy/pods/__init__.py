"""What a pod is, what is known about it, and what components share of its lifecycle.

Pure, as is every module here.
"""
