"""The pods API: the node's pods with their newest statuses, for programs on the node.

Behind the feature gate PodsAPI. Must never send requests to the API server.
"""
