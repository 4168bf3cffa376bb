"""iSCSI volumes."""
