"""Train a scheduler of staged jobs by policy gradient, and hold it against others on jobs that it has not seen."""
