"""Commands: list, describe, simulate, sweep, compare, calibrate, validate."""
