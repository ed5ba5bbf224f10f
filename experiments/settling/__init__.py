"""Measuring what makes a verdict certain."""
