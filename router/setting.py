"""One setting: how its text is read, what it is called outside, what is said when it is wrong.

A setting is read from text in the same way wherever it was given, and a wrong one is one line naming that
place and what was expected there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from router.discreet import only_place
from router.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SHOWN_CHARACTERS = 80  # of a wrong value, in the message about it


@dataclass(frozen=True, slots=True, repr=False)
class Misfit:
    """Something in the place of a value that no setting takes; `what` says what, as a message names it."""

    what: str

    def __repr__(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True)
class Given:
    """What was given for one setting, and `source`: where, as a message to the operator names it."""

    source: str
    value: str | dict[str, str | Misfit] | list[Given] | Misfit


@dataclass(frozen=True, slots=True)
class Kind:
    """How a value is read: `read` raises ValueError for what is not expected, ConfigError to say more."""

    expected: str
    read: Callable[[Any], Any]
    placeholder: str
    takes: tuple[type, ...] = (str,)
    schema: Mapping[str, object] = field(default_factory=dict)  # in JSON Schema's words, as far as it has any


def integer(low: int, high: int) -> Kind:
    """Return the kind of whole numbers. Digits only: `int` would take 1_000 and digits of other scripts."""

    def read(text: str) -> int:
        if re.fullmatch(r"-?[0-9]{1,18}", text) and low <= int(text) <= high:
            return int(text)
        raise ValueError(text)

    schema = {"type": "integer", "minimum": low, "maximum": high}
    return Kind(f"a whole number from {low} to {high}", read, "N", schema=schema)


_NUMBER = re.compile(r"-?([0-9]+\.?|[0-9]*\.[0-9]+)([eE][-+]?[0-9]+)?")


def number(low: float, high: float) -> Kind:
    """Return the kind of numbers, with or without a fraction; never NaN or infinite."""

    def read(text: str) -> float:
        if _NUMBER.fullmatch(text) and low <= float(text) <= high:
            return float(text)
        raise ValueError(text)

    schema = {"type": "number", "minimum": low, "maximum": high}
    return Kind(f"a number from {low:.16g} to {high:.16g}", read, "N", schema=schema)


def one_of(names: Iterable[str]) -> Kind:
    """Return the kind of names out of a list."""
    known = tuple(names)

    def read(text: str) -> str:
        if text in known:
            return text
        raise ValueError(text)

    return Kind(f"one of {', '.join(known)}", read, "NAME", schema={"enum": known})


def word(expected: str, placeholder: str, pattern: str) -> Kind:
    """Return the kind of text that matches a pattern as a whole."""

    def read(text: str) -> str:
        if re.fullmatch(pattern, text):
            return text
        raise ValueError(text)

    return Kind(expected, read, placeholder)


@dataclass(frozen=True, slots=True)
class Setting:
    """What is said of a setting beside its type and default. `unit` is that of the number."""

    kind: Kind
    help: str
    unit: str = ""
    repeated: bool = False
    secret: bool = False  # a wrong value is not shown


@dataclass(frozen=True, slots=True)
class Option:
    """A setting under the names it has outside; `name` is that of the field, and of the key in a file."""

    name: str
    setting: Setting
    default: object = None

    @property
    def flag(self) -> str:
        """Its name on the command line; a repeated one is named in the singular."""
        name = self.name.removesuffix("s") if self.setting.repeated else self.name
        return "--" + name.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return "KV_ROUTER_" + self.flag.removeprefix("--").replace("-", "_").upper()

    @property
    def shown_default(self) -> str:
        """Its default as an operator would write it, or `none`."""
        if isinstance(self.default, tuple):
            return " ".join(map(str, self.default))
        if isinstance(self.default, float):
            return f"{self.default:.16g}"
        return "none" if self.default is None else str(self.default)

    @property
    def limits(self) -> str:
        """What is expected, with the unit."""
        return " ".join(filter(None, (self.setting.kind.expected, self.setting.unit)))

    def read(self, given: Given) -> Any:
        """Return the value. Raises ConfigError naming the source and what was expected."""
        if not self.setting.repeated:
            return self._read_one(given)
        if not isinstance(given.value, list):
            raise ConfigError(f"{given.source}: expected a list of {self.limits}, got {self._got(given)}")
        return tuple(map(self._read_one, given.value))

    def _read_one(self, given: Given) -> Any:
        kind = self.setting.kind
        try:
            if isinstance(given.value, kind.takes):
                return kind.read(given.value)
        except ConfigError as error:
            raise error.at(given.source) from None
        except ValueError:
            pass
        raise ConfigError(f"{given.source}: expected {self.limits}, got {self._got(given)}")

    def _got(self, given: Given) -> str:
        return "another value" if self.setting.secret else _shown(given.value)


def _shown(value: object) -> str:
    if isinstance(value, str):
        value = only_place(value)
        return repr(value if len(value) <= SHOWN_CHARACTERS else value[:SHOWN_CHARACTERS] + "...")
    if isinstance(value, Misfit):
        return value.what
    return "a list" if isinstance(value, list) else "a mapping"
