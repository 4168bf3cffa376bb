"""What is passed to the runtime: sandboxes and containers in the CRI's terms.

Pure: so is every module here.
"""
