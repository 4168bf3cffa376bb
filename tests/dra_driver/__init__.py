"""A DRA driver for tests: devices are CDI devices that set a variable in their container."""
