"""Quantities with units: known values, and what is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InvalidInput
from simulator.model.units import (
    format_bytes,
    format_energy,
    format_seconds,
    parse_bandwidth,
    parse_bytes,
    parse_power,
    parse_price,
    parse_rate,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_bytes, "24 GiB", 24 * 2**30),
        (parse_bytes, "16GB", 16e9),
        (parse_bytes, "512 B", 512),
        (parse_bytes, "1.5 MiB", 1.5 * 2**20),
        (parse_bandwidth, "25 GB/s", 25e9),
        (parse_bandwidth, "100 Gbit/s", 12.5e9),
        (parse_bandwidth, " 1e3 MB/s ", 1e9),
        (parse_seconds, "80ms", 0.08),
        (parse_seconds, "10us", 1e-5),
        (parse_seconds, "10 µs", 1e-5),
        (parse_seconds, "5min", 300),
        (parse_seconds, "0", 0),
        (parse_seconds, 0, 0),
        (parse_seconds, "0.0", 0),
        (parse_rate, "20/s", 20),
        (parse_rate, "90 /min", 1.5),
        (parse_power, "70 W", 70),
        (parse_power, "1.2kW", 1200),
        (parse_price, "0.35/h", 0.35),
        (parse_price, "12/day", 0.5),
    ],
)
def test_known_values(parse, text, value):
    assert parse(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("parse", "text", "reason"),
    [
        (parse_bandwidth, "25 Gb/s", "ambiguous.*'GB/s'.*'Gbit/s'"),
        (parse_bytes, "25 Mb", "ambiguous.*'MB'.*'Mbit'"),
        (parse_bandwidth, "25", "no unit"),
        (parse_bandwidth, 12.5, "no unit"),
        (parse_bandwidth, "25 GB", "unknown unit 'GB'"),
        (parse_bytes, "24 gib", "did you mean 'GiB'"),
        (parse_seconds, "80 m", "unknown unit 'm'"),
        (parse_seconds, "5 M", "unknown unit 'M'"),
        (parse_seconds, "ms", "not a quantity"),
        (parse_seconds, "1,5 s", "unknown unit"),
        (parse_seconds, "1e999 s", "not finite"),
        (parse_bytes, "1e300 TB", "not finite"),
        (parse_rate, "20", "no unit"),
    ],
)
def test_what_is_ambiguous_is_refused(parse, text, reason):
    with pytest.raises(InvalidInput, match=reason):
        parse(text, "link bandwidth")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0412, "41.2 ms"),
        (1.0, "1.00 s"),
        (0.9999, "1.00 s"),
        (123.456, "123 s"),
        (2.5e-6, "2.50 us"),
        (3e-9, "3.00 ns"),
        (0.0, "0 s"),
        (math.inf, "inf"),
    ],
)
def test_seconds_are_shown_with_three_digits(seconds, text):
    assert format_seconds(seconds) == text


def test_energies_are_shown_with_three_digits():
    shown = [format_energy(j) for j in (0, 5e-6, 0.0125, 70, 1234, 2.5e6, math.inf)]
    assert shown == ["0 J", "5.00 uJ", "12.5 mJ", "70.0 J", "1.23 kJ", "2.50 MJ", "inf"]


def test_bytes_are_shown_in_decimal_units():
    assert [format_bytes(b) for b in (12, 97_500_000, 2e12)] == ["12 B", "97.5 MB", "2.00 TB"]


@given(st.floats(1e-8, 1e6))
def test_shown_seconds_parse_back_to_three_digits(seconds):
    assert parse_seconds(format_seconds(seconds)) == pytest.approx(seconds, rel=5.1e-3)


def test_refusals_shorten_what_nobody_reads() -> None:
    error = InvalidInput(f"Device 'cpu' is in memory space '{'x' * 3000}', it has ram")
    shown = "'" + "x" * 99 + "... (3003 characters)"
    assert str(error) == f"Device 'cpu' is in memory space {shown} it has ram"
    path = "/".join(["folder"] * 20)
    assert str(InvalidInput(f"No file {path}")) == f"No file {path}"
