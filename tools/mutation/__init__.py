"""Mutations of pure modules: small faults in decisions, which a test of their package must notice.

``python -m tools.mutation`` is the ``mutation`` section of ``./test.sh``.
"""
