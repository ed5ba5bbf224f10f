"""Comparing what runs left: contests of schedulers, statistics, tables, the report."""
