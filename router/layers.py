"""Settings as they are given: flags beat the environment, which beats the file.

A wrong value is an error also where a stronger one would hide it, and is one line.
"""

from __future__ import annotations

from collections import ChainMap
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeAlias

from router.config import ALL_OPTIONS, CONFIG_FILE, OPTIONS, Config
from router.config_file import read_file
from router.errors import ConfigError
from router.together import check_together
from router.variables import as_given, from_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from router.setting import Given

# What was typed, by field name, `config` among them.
Flags: TypeAlias = "Mapping[str, str | Sequence[str]]"
# What the key `version` of a file may be: files of another would mean something else by the same words.
FILE_VERSION = "1"


def load(flags: Flags, environ: Mapping[str, str]) -> Config:
    """Return the settings given by flags (by field name; plus `config`), environment and file.

    Raises ConfigError, one line, for the first wrong value, and for values that cannot be together.
    """
    config = Config(**{"workers": (), **given_values(flags, environ)})
    check_together(config)
    return config


def given_values(flags: Flags, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Return what flags, environment and file give, by field name. Raises ConfigError as `load` does."""
    layers = [_from_flags(flags), from_environment(environ)]
    paths = [layer.pop("config") for layer in layers if "config" in layer]
    if paths:
        layers.append(read_settings(CONFIG_FILE.read(paths[0])))
    return ChainMap(*map(read_layer, layers))


def config_path(flags: Flags, environ: Mapping[str, str]) -> str | None:
    """Return the path of the file that flags or environment name. Raises ConfigError for what is no path."""
    for layer in (_from_flags(flags), from_environment(environ)):
        if "config" in layer:
            path: str = CONFIG_FILE.read(layer["config"])
            return path
    return None


def read_settings(path: str) -> dict[str, Given]:
    """Return what a file gives, without its version. Raises ConfigError as `read_file` does."""
    given = read_file(path)
    version = given.pop("version", None)
    if version is not None and version.value != FILE_VERSION:
        raise ConfigError(f"{version.source}: expected {FILE_VERSION}, the version that this router reads")
    return given


def _from_flags(flags: Flags) -> dict[str, Given]:
    named = {option.name: option.flag for option in ALL_OPTIONS}
    return {name: as_given(named[name], value) for name, value in flags.items()}


def read_layer(layer: Mapping[str, Given]) -> dict[str, Any]:
    """Return the values of what one place gives. Raises ConfigError for the first that is wrong."""
    for name, given in layer.items():
        if name not in OPTIONS:
            near = get_close_matches(name, OPTIONS, n=1) or ["one that kv-router config schema lists"]
            raise ConfigError(f"{given.source}: unknown key, expected {near[0]}")
    return {name: OPTIONS[name].read(given) for name, given in layer.items()}
