"""A YAML configuration file: its keys, their values as text, and the line each stands on.

Values stay the text that stands in the file. YAML's own guesses at types (`no` is false, 010 is eight) differ
from what the same words mean as a flag or a variable; here a setting is read the same way wherever it is
given, and nothing in a file can construct an object.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from router.errors import ConfigError
from router.setting import SHOWN_CHARACTERS, Given

NULL = "tag:yaml.org,2002:null"


def read_file(path: str) -> dict[str, Given]:
    """Return what a file gives, by key with `_` for `-`; a key without a value is left out.

    Raises ConfigError with path and line when the file cannot be read, is not YAML, or is no mapping.
    """
    root = _compose(path)
    if root is None or root.tag == NULL:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path}: expected keys and values, such as 'port: 8000', got {_kind(root)}")
    return {
        key.replace("-", "_"): Given(f"{_place(path, node)}: {key}", _value(path, node, key))
        for key, node in _pairs(path, root).items()
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
        text = Path(path).read_text("utf-8-sig")
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"{path}: not YAML: {error}") from None


def _pairs(path: str, node: yaml.MappingNode) -> dict[str, yaml.Node]:
    """Return a mapping's values by key. PyYAML itself would let the last of two equal keys win in silence."""
    pairs: dict[str, yaml.Node] = {}
    spelled = set()
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise ConfigError(f"{_place(path, key_node)}: expected a key, got {_kind(key_node)}")
        key = key_node.value
        if key.replace("-", "_") in spelled:
            raise ConfigError(f"{_place(path, key_node)}: {key!r} is given twice")
        spelled.add(key.replace("-", "_"))
        if value_node.tag != NULL:
            pairs[key] = value_node
    return pairs


def _value(path: str, node: yaml.Node, key: str) -> str | dict[str, str] | list[Given]:
    if isinstance(node, yaml.SequenceNode):
        return [Given(f"{_place(path, item)}: {key}", _item(path, item, f": {key}")) for item in node.value]
    return _item(path, node, f": {key}")


def _item(path: str, node: yaml.Node, within: str = "") -> str | dict[str, str]:
    """Return a value, or an item of a list; `within` names the key that it belongs to."""
    if isinstance(node, yaml.MappingNode):
        pairs = _pairs(path, node).items()
        return {key: _text(path, value, f"{within}: {key}") for key, value in pairs}
    return _text(path, node, within)


def _text(path: str, node: yaml.Node, within: str) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise ConfigError(f"{_place(path, node)}{within}: expected a single value, got {_kind(node)}")
    return str(node.value)


def _place(path: str, node: yaml.Node) -> str:
    return f"{path}:{node.start_mark.line + 1}"


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.CollectionNode):
        return "a mapping" if isinstance(node, yaml.MappingNode) else "a list"
    return f"{node.value!r:.{SHOWN_CHARACTERS}}"
