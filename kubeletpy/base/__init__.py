"""Ground of all packages: the API's formats, this machine, wire formats, clocks. No word of
pods."""
