"""Reading a model's `config.json`: every field checked where it is read, every error one line that names the field."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..findings.reading import MISSING, UnreadableError, json_of, read_bytes
from ..findings.visible import one_line

LARGEST = 2**30
"""The largest count or length that is accepted. More is a typing error, and would only make the arithmetic slow."""


class ModelError(Exception):
    """The description of a model, or what was asked of it, is wrong; one line that says what, where and what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


def read_json(path: Path) -> dict[str, object]:
    """The object in a JSON file. ModelError if there is no such file or it holds something else."""
    try:
        raw = json_of(read_bytes(path, "config.json"))
    except UnreadableError as error:
        examples = "; examples/ has the config.json of some models" if str(error) == MISSING else ""
        raise ModelError(f"{path}: {error}{examples}") from None
    except ValueError as error:
        raise ModelError(f"{path}: not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ModelError(f"{path}: expected an object, as in a config.json, got {type(raw).__name__}")
    return raw


class Fields:
    """One object of the document, and where it stands for error messages."""

    def __init__(self, raw: Mapping[str, object], where: str) -> None:
        self.raw = raw
        self.where = where

    def wrong(self, problem: str) -> ModelError:
        """An error about this object."""
        return ModelError(f"{self.where}: {problem}")

    def has(self, name: str) -> bool:
        """True if the field is there and not null."""
        return self.raw.get(name) is not None

    def inner(self, name: str) -> "Fields":
        """The object in a field."""
        value = self.raw.get(name)
        if not isinstance(value, dict):
            raise self.wrong(f"field {name!r} must be an object, got {_shown(value)}")
        return Fields(value, f"{self.where}: {name}")

    def count(self, *names: str, default: int | None = None, least: int = 1, most: int = LARGEST) -> int:
        """A whole number: the first of these fields that is there, else the default. ModelError if there is neither."""
        for name in names:
            value = self.raw.get(name)
            if value is None:
                continue
            if type(value) is not int:
                raise self.wrong(f"field {name!r} must be a whole number, got {_shown(value)}")
            if not least <= value <= most:
                raise self.wrong(f"field {name!r} must be in {least:,} .. {most:,}, got {_shown(value)}")
            return value
        if default is None:
            raise self.wrong(f"field {names[0]!r} is missing")
        return default

    def text(self, name: str, default: str | None = None) -> str:
        """A text. ModelError if it is missing and there is no default."""
        value = self.raw.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.wrong(
                f"field {name!r} is missing" if value is None else f"field {name!r} must be a text, got {_shown(value)}"
            )
        return value

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(f"field {name!r} must be true or false, got {_shown(value)}")
        return value

    def listed(self, name: str) -> Sequence[object]:
        """An array."""
        value = self.raw.get(name)
        if not isinstance(value, list):
            raise self.wrong(f"field {name!r} must be an array, got {_shown(value)}")
        return value

    def quotient(self, value: int, what: str, divisor: int, by: str) -> int:
        """`value / divisor`. ModelError, in these words, unless it is whole."""
        if value % divisor:
            raise self.wrong(f"{what} ({value:,}) cannot be divided by {by} ({divisor:,})")
        return value // divisor


def _shown(value: object) -> str:
    """A value for an error message, on one line and not too long."""
    if value is None:
        return "nothing"
    try:
        text = json.dumps(value)
    except ValueError:  # an integer of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 40 else f"{text[:37]}..."
