"""Methods: plain async functions from (question, ask) to a decision, found by name.

A method's keyword arguments with defaults are its parameters: `--set`, the manifest and
`--list-methods` read them from its signature. Adding a method is adding a file to this folder.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from medagents_async.errors import UsageError
from medagents_async.types import Decision, Solve

#: An async function (question, ask, *, parameters), or a class that makes one from parameters.
MethodFunction = Callable[..., Awaitable[Decision]] | type[Solve]
F = TypeVar("F", bound=MethodFunction)


@dataclass(frozen=True)
class Method:
    """A registered method: its function, its parameters' defaults and its presets.

    `calls` and `depth` say how many calls a question takes, and how many of them wait for one
    another; for people, who read them in `--list-methods`.
    """

    name: str
    function: MethodFunction
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    calls: str = "not stated"
    depth: str = "not stated"

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """Parameter name to its annotated type."""
        return get_type_hints(self.function, include_extras=True)

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """Parameter name to default value, in the order of the signature."""
        return {
            name: parameter.default
            for name, parameter in inspect.signature(self.function).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }

    def parameters(self, preset: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Every parameter's value: the defaults, then the preset, then `settings`.

        Raises UsageError on an unknown preset or parameter, on a value of the wrong type, and
        where the method refuses them together or cannot read a file that they name.
        """
        if preset is not None and preset not in self.presets:
            known = ", ".join(self.presets) or "none"
            raise UsageError(f"method {self.name} has no preset {preset!r}; it has: {known}")
        values = {**self.defaults, **(self.presets[preset] if preset else {})}
        for name, value in settings.items():
            if name not in values:
                raise UsageError(
                    f"method {self.name} has no parameter {name!r}; it has: {', '.join(values)}"
                )
            values[name] = _typed(self.name, name, self.hints[name], value)
        self.solver(values)  # a class checks its parameters when it is made
        return values

    def solver(self, parameters: Mapping[str, Any]) -> Solve:
        if isinstance(self.function, type):
            made: Solve = self.function(**parameters)
            return made
        return functools.partial(self.function, **parameters)


_REGISTRY: dict[str, Method] = {}


def method(
    name: str,
    *,
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    calls: str = Method.calls,
    depth: str = Method.depth,
) -> Callable[[F], F]:
    """Register the decorated function or class as `--method NAME`."""

    def register(function: F) -> F:
        _REGISTRY[name] = Method(name, function, presets or {}, calls, depth)
        return function

    return register


def every_method() -> dict[str, Method]:
    """All methods of this folder by name, sorted."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(_REGISTRY.items()))


def find(name: str) -> Method:
    """The method called `name`, or the one in `FILE.py:FUNCTION`.

    Raises UsageError when there is none.
    """
    path, colon, function = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_file(Path(path), function)
    module = name.replace("-", "_")
    if module.isidentifier() and importlib.util.find_spec(f"{__name__}.{module}"):
        importlib.import_module(f"{__name__}.{module}")  # the others need not be loaded
    methods = _REGISTRY if name in _REGISTRY else every_method()
    if name not in methods:
        raise UsageError(
            f"there is no method {name!r}; there are: {', '.join(methods)}, "
            "or FILE.py:FUNCTION for your own"
        )
    return methods[name]


def _from_file(path: Path, function: str) -> Method:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"--method {path}:{function}: no such file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"--method {path}: {type(error).__name__}: {error}") from error
    found = getattr(module, function, None)
    if not inspect.iscoroutinefunction(found):
        raise UsageError(f"--method {path}:{function}: the file has no such async function")
    registered = [known for known in _REGISTRY.values() if known.function is found]
    return registered[0] if registered else Method(function, found)


def _typed(method_name: str, name: str, hint: Any, value: Any) -> Any:
    """`value` as the annotated type; a list may be written as `a|b|c`."""
    adapter = TypeAdapter[Any](hint)
    if isinstance(value, str) and "list" in str(hint) and not value.lstrip().startswith("["):
        value = [part.strip() for part in value.split("|") if part.strip()]
    try:
        if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
            return adapter.validate_json(value)
        return adapter.validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UsageError(f"--set {name}={value}: {reason} (method {method_name})") from error
