"""Patches of every kind, server-side apply and who owns which field.

Pure: so is every module here.
"""
