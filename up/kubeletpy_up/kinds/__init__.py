"""What differs from kind to kind when an object is created or changed.

Pure: so is every module here.
"""
