"""What a pod is, what is said of it, and what rooms share of its run.

Pure: so is every module here.
"""
