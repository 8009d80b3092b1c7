"""Something that a JSON schema allows: what a model under `structured_outputs` would write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

_WORDS = ("unclear", "acute", "chronic", "benign", "stable", "severe")


def instance(schema: Mapping[str, Any], dice: Random) -> Any:
    """Make up a value of `schema`: of its enum, first variant, or type; null where it says none.

    Lengths and bounds of numbers are kept to, patterns and references are not looked at.
    """
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return dice.choice(schema["enum"])
    for variants in ("anyOf", "oneOf", "allOf"):
        if variants in schema:
            return instance(schema[variants][0], dice)
    kind = schema.get("type")
    make = _OF_TYPE.get(kind[0] if isinstance(kind, list) else kind)
    return make(schema, dice) if make else None


def _object(schema: Mapping[str, Any], dice: Random) -> dict[str, Any]:
    return {name: instance(part, dice) for name, part in schema.get("properties", {}).items()}


def _array(schema: Mapping[str, Any], dice: Random) -> list[Any]:
    count = max(schema.get("minItems", 1), min(2, schema.get("maxItems", 2)))
    return [instance(schema.get("items", {}), dice) for _ in range(count)]


def _string(schema: Mapping[str, Any], dice: Random) -> str:
    word: str = dice.choice(_WORDS).ljust(schema.get("minLength", 0), ".")
    return word[: schema.get("maxLength")]


def _integer(schema: Mapping[str, Any], dice: Random) -> int:
    low = schema.get("minimum", 0)
    return dice.randint(low, max(low, schema.get("maximum", low + 9)))


def _number(schema: Mapping[str, Any], dice: Random) -> float:
    low = schema.get("minimum", 0)
    return dice.uniform(low, max(low, schema.get("maximum", low + 1)))


_OF_TYPE: Mapping[str | None, Callable[[Mapping[str, Any], Random], Any]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": lambda _, dice: dice.random() < 0.5,
}
