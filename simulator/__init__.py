"""Simulated time: graphs, clusters, the engine, schedulers, traces and metrics."""
