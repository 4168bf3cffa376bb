"""Certificates of pods (podCertificate): requested, waited for, projected, refreshed."""
