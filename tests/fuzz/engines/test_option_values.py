"""What somebody writes for an option of a simulated engine: one of its values, a number among numbers, or a text."""

import pytest
from blockproof.fuzz.engines.simulated import _read


@pytest.mark.parametrize(
    ("text", "values", "value"),
    [
        ("4", (0, 4), 4),
        ("3", (0, 4), 3),
        ("True", (False, True), True),
        ("disk", ("ram", "disk"), "disk"),
        ("elsewhere", ("ram", "disk"), "elsewhere"),
        ("7", ("ram", 1), "7"),
        ("7", (), "7"),
    ],
)
def test_a_number_is_one_where_there_are_numbers(text, values, value):
    read = _read(text, values)
    assert (read, type(read)) == (value, type(value))


def test_a_text_where_there_are_numbers_is_said():
    with pytest.raises(ValueError, match="'few' is no number; the option has numbers, 0, 4 say"):
        _read("few", (0, 0, 4))
