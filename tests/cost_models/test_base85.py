"""Base 85 is decoded as the standard library decodes it, and refused where that refuses it."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.base85 import b85decode


@given(data=st.binary(max_size=40))
def test_decodes_what_the_standard_library_encodes(data):
    assert b85decode(base64.b85encode(data).decode()) == data


@given(text=st.text(st.sampled_from("0Az~ é|"), max_size=12))
def test_refuses_what_the_standard_library_refuses(text):
    try:
        expected = base64.b85decode(text)
    except ValueError:
        with pytest.raises(ValueError, match=r"base 85|ascii"):
            b85decode(text)
    else:
        assert b85decode(text) == expected
