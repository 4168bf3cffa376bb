"""The names by which a pod's things are recognised: labels, annotations, hashes, log paths.

Pure: so is every module here.
"""
