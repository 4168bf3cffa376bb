"""What is passed to the runtime: sandboxes and containers in CRI terms.

Pure: so is every module here.
"""
