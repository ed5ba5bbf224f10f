"""Partitions: planners that decide where the graphs of jobs are cut, what is made of them, and what runs where."""
