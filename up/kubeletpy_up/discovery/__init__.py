"""How the API describes itself: groups, resources, OpenAPI documents.

Pure: so is every module here.
"""
