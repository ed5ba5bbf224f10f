"""How transfers share links."""
