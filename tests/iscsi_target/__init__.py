"""An iSCSI target, iscsiadm and the kernel, as far as a node sees them: files below a directory.

``python -m tests.iscsi_target DIRECTORY ARGUMENTS…`` is iscsiadm. Exit statuses are its own.
"""
