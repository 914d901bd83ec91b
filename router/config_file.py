"""A YAML configuration file: its keys, their values as text, and the line each stands on.

Values stay the text that stands in the file. YAML's own guesses at types (`no` is false, 010 is eight) differ
from what the same words mean as a flag or a variable; here a setting is read the same way wherever it is
given, and nothing in a file can construct an object.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml

from router.errors import ConfigError
from router.named_file import read_named
from router.setting import Given, Misfit

# What YAML's messages quote: a character, a <token> of its own, or a name in the file.
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
# What follows in a key can be a value, where there is no space behind the colon.
_END_OF_NAME = re.compile(r"[:=\s]")
_MOST_BYTES = 2**20  # a thousand workers take a tenth of it
NULL = "tag:yaml.org,2002:null"


def read_file(path: str) -> dict[str, Given]:
    """Return what a file gives, by key with `_` for `-`; a key without a value is left out.

    A value of a shape that no setting has is a `Misfit`, to be refused with what else is wrong with values.
    Raises ConfigError with path and line when the file cannot be read, is not YAML, or is no mapping.
    """
    root = _compose(path)
    if root is None or root.tag == NULL:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path}: expected keys and values, such as 'port: 8000', got {_kind(root)}")
    return {
        pair.key.replace("-", "_"): Given(f"{_place(path, pair.at)}: {_named(pair.key)}", _value(path, pair))
        for pair in _pairs(path, root)
    }


def read_list(path: str) -> list[Given]:
    """Return the items of a file that is a list. Raises ConfigError as `read_file` does."""
    root = _compose(path)
    if not isinstance(root, yaml.SequenceNode):
        got = "nothing" if root is None else _kind(root)
        raise ConfigError(f"{path}: expected a list, [] for an empty one, got {got}")
    return [Given(_place(path, item), _item(path, item)) for item in root.value]


def _compose(path: str) -> yaml.Node | None:
    try:
        text = read_named(path, _MOST_BYTES)
        return yaml.compose(text.decode(), Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: not YAML: {_said(error)}") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"{path}: not YAML: {error}") from None


def _said(error: yaml.MarkedYAMLError) -> str:
    """Return what is wrong, without names: where a secret should stand in quotes, it can be one."""
    return _QUOTED.sub(_unnamed, error.problem or error.context or "")


def _unnamed(quoted: re.Match[str]) -> str:
    said = quoted[0][1:-1]
    return quoted[0] if len(said) <= 1 or said.startswith(("<", "\\")) else "a name"


@dataclass(frozen=True, slots=True)
class _Pair:
    """A key and its value, None for one that is given twice; `at`: what stands on the line to name."""

    key: str
    value: yaml.Node | None
    at: yaml.Node


def _pairs(path: str, node: yaml.MappingNode) -> list[_Pair]:
    """Return what a mapping gives. PyYAML itself would let the last of two equal keys win in silence."""
    pairs: dict[str, _Pair] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise ConfigError(f"{_place(path, key_node)}: expected a key, got {_kind(key_node)}")
        key: str = key_node.value
        name = key.replace("-", "_")
        pairs[name] = _Pair(key, None, key_node) if name in pairs else _Pair(key, value_node, value_node)
    return [pair for pair in pairs.values() if pair.value is None or pair.value.tag != NULL]


def _value(path: str, pair: _Pair) -> str | dict[str, str | Misfit] | list[Given] | Misfit:
    if isinstance(pair.value, yaml.SequenceNode):
        return [Given(f"{_place(path, item)}: {pair.key}", _item(path, item)) for item in pair.value.value]
    return _item(path, pair.value)


def _item(path: str, node: yaml.Node | None) -> str | dict[str, str | Misfit] | Misfit:
    """Return a value, or an item of a list."""
    if isinstance(node, yaml.MappingNode):
        return {pair.key: _text(pair.value) for pair in _pairs(path, node)}
    return _text(node)


def _text(node: yaml.Node | None) -> str | Misfit:
    if node is None:
        return Misfit("a second value")
    return str(node.value) if isinstance(node, yaml.ScalarNode) else Misfit(_kind(node))


def _named(key: str) -> str:
    """Return a key as a message may show it."""
    name, *rest = _END_OF_NAME.split(key, maxsplit=1)
    return f"{name}..." if rest else name


def _place(path: str, node: yaml.Node) -> str:
    return f"{path}:{node.start_mark.line + 1}"


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.CollectionNode):
        return "a mapping" if isinstance(node, yaml.MappingNode) else "a list"
    return "text"
