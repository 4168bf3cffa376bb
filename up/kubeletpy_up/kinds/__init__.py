"""Rules of single kinds for creating and changing objects.

Pure: so is every module here.
"""
