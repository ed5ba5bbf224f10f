"""Serving schedulers: requests wait at nodes and are served there, several of a model at once."""
