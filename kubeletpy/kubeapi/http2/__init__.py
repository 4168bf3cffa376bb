"""HTTP/2 to an API server: all requests and watches on one connection.

The protocol is the library h2's; it is imported when a server has chosen HTTP/2. Source: RFC 9113.
"""
