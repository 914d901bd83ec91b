"""`kv-router config schema`: a JSON schema of the file of --config, for editors and checks in a pipeline.

It is made from the table in `router.config`. What a text must look like beyond its type is the router's to
say: `kv-router config check`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from router.config import OPTIONS
from router.layers import FILE_VERSION
from router.live import LIVE

if TYPE_CHECKING:
    from router.setting import Option

_NOTE = {True: "Changes take effect while the router runs.", False: "A change needs a restart."}


def schema_text() -> str:
    """Return the schema as JSON, with a newline at its end."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def schema() -> dict[str, Any]:
    """Return the schema, of draft 2020-12."""
    properties: dict[str, Any] = {
        "version": {"enum": [int(FILE_VERSION), FILE_VERSION], "description": "Of the file's form"}
    }
    properties |= {name: _property(option) for name, option in OPTIONS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kv-router, --config FILE",
        "type": ["object", "null"],
        "properties": properties,
        "additionalProperties": False,
    }


def _property(option: Option) -> dict[str, Any]:
    setting = option.setting
    said = f"{setting.help}. {_NOTE[option.name in LIVE]}"
    one = _one(option)
    shown: dict[str, Any] = {"type": "array", "items": one} if setting.repeated else one
    shown = {"description": said, **shown}
    if option.default is not None:
        shown["default"] = list(option.default) if isinstance(option.default, tuple) else option.default
    return shown


def _one(option: Option) -> dict[str, Any]:
    kind = option.setting.kind
    if kind.schema:
        return dict(kind.schema)
    types = ["string", "object"] if dict in kind.takes else ["string"]
    return {"type": types, "$comment": f"expected: {option.limits}"}
