"""Fibre Channel volumes."""
