"""Decoding of clients' bodies into objects of known types.

Pure: so is every module here.
"""
