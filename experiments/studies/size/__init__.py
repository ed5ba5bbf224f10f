"""How many devices, and which."""
