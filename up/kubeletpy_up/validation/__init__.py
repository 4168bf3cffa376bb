"""What the API refuses, in its own words: one module per subject.

Pure: so is every module here.
"""
