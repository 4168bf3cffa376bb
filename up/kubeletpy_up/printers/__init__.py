"""The cells of ``kubectl get``: one function per resource, from an object to a table row.

Pure: so is every module here.
"""
