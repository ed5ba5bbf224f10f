"""What is run and what came of it, as data."""
