"""What clients send, as objects of known types.

Pure: so is every module here.
"""
