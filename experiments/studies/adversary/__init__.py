"""The instance on which one scheduler loses most to another."""
