"""Sources of a configuration: a MemoryConfig of mem0, files and environment variables, as nested dicts for `schema`.

Values are not checked here. Error messages never contain a value: it could be a secret.
"""

from __future__ import annotations

import importlib
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from graphmem.errors import ConfigError, install_extra

ENVIRONMENT_PREFIX = "GRAPHMEM_"
# The variable that names the file of settings for programs whose command line has no place for it.
CONFIG_VARIABLE = "GRAPHMEM_CONFIG"
# Variables with the prefix that are no settings: GRAPHMEM_SERVERS has the addresses of the test servers.
_NOT_SETTINGS = frozenset({"GRAPHMEM_SERVERS", CONFIG_VARIABLE})
# Further names of variables, such as that of mem0's ADMIN_API_KEY.
_OTHER_NAMES = {"GRAPHMEM_ADMIN_API_KEY": "GRAPHMEM_SERVE__ADMIN_API_KEY"}


def mem0_config_as_dict(config: BaseModel) -> dict[str, Any]:
    """Returns the dict from which a `MemoryConfig` of mem0 was made."""
    values = config.model_dump(exclude_unset=True, warnings=False)
    for name in values.keys() & {"llm", "embedder", "vector_store"}:
        section = values[name]
        if isinstance(section, dict):
            section.setdefault("provider", getattr(getattr(config, name), "provider", None))
            # The default that mem0 fills in.
            store = section.get("config")
            if isinstance(store, dict) and store.get("path") == f"/tmp/{section['provider']}":  # noqa: S108
                del store["path"]
    return values


def has_path(nested: object, key_path: Sequence[str]) -> bool:
    """Returns True if nested dicts have a value at this path of keys."""
    for key in key_path:
        if not isinstance(nested, Mapping) or key not in nested:
            return False
        nested = nested[key]
    return True


def read_file(path: Path) -> Any:
    """Reads a .toml, .yaml, .yml or .json file. Raises `ConfigError`."""
    loaders: Mapping[str, Callable[[str], Any]] = {
        ".toml": tomllib.loads,
        ".json": load_json,
        ".yaml": _load_yaml,
        ".yml": _load_yaml,
    }
    suffix = path.suffix.lower()
    if suffix not in loaders:
        message = f"{path}: a configuration file ends in {', '.join(loaders)}; rename or convert it"
        raise ConfigError(message)
    try:
        return loaders[suffix](path.read_text("utf-8-sig"))
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
        raise ConfigError(message) from error
    except (ValueError, RecursionError) as error:  # TOML, JSON and UTF-8 errors name the place, not the content
        message = f"{path}: is not valid {suffix[1:].upper()}: {error}"
        raise ConfigError(message) from None


class KeyGivenTwice(ValueError):
    """An object has a key twice; the text names it."""

    def __init__(self, key: object, place: str = "") -> None:
        super().__init__(f"the key {key!r} is given twice{place}; keep one")


def load_json(text: str) -> Any:
    """Reads JSON. Raises ValueError, KeyGivenTwice for an object that has a key twice."""
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise KeyGivenTwice(key)
        result[key] = value
    return result


def _load_yaml(text: str) -> Any:
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        message = f"YAML configuration needs PyYAML; use TOML or JSON, or {install_extra('yaml')}"
        raise ConfigError(message) from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined, unused-ignore]
        def compose_mapping_node(self, anchor: Any) -> Any:  # before "<<" adds the keys of others
            node, seen = super().compose_mapping_node(anchor), set()
            for key, _ in node.value:
                name = key.tag, str(key.value)
                if name in seen:
                    raise KeyGivenTwice(name[1], f" by line {key.start_mark.line + 1}")
                seen.add(name)
            return node

    try:
        return yaml.load(text, Loader)
    except KeyGivenTwice:
        raise
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        # The error's own text quotes the file, which may contain secrets.
        raise ValueError(f"see line {mark.line + 1}" if mark else "unreadable") from None


def merge(defaults: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Merges two nested dicts; the values of `overrides` win."""
    merged_sections = {name: merge(defaults[name], overrides[name]) for name in defaults.keys() & overrides.keys()
            if isinstance(defaults[name], Mapping) and isinstance(overrides[name], Mapping)}  # fmt: skip
    return {**defaults, **overrides, **merged_sections}


def nested_variables(environ: Mapping[str, str]) -> dict[str, Any]:
    """Returns the GRAPHMEM_* variables as nested dicts: GRAPHMEM_A__B=c becomes {"a": {"b": "c"}}."""
    nested: dict[str, Any] = {}
    for name, value in sorted(environ.items()):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in _NOT_SETTINGS or not value:
            continue
        *sections, key = _OTHER_NAMES.get(name, name).removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
        inner = nested
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                message = f"{name}: {section} is set to a plain value by another variable; keep one of the two"
                raise ConfigError(message)
        inner[key] = value
    return nested
