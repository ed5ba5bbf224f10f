"""How a device executes what it begins."""
