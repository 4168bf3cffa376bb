"""What a pod is, what is known about it, and what rooms share of its lifecycle.

Pure, as is every module here.
"""
