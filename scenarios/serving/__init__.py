"""Serving: what selections are trained on, and what they are trained to."""
