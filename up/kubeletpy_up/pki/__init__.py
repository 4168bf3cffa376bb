"""Certificates and requests for them."""
