"""What the API says of itself: groups, resources, OpenAPI documents.

Pure: so is every module here.
"""
