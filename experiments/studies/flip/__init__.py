"""How far a verdict is from its opposite."""
