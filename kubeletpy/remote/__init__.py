"""Remote: the CRI client. Makes calls to a container runtime; decides nothing."""
