"""What the installed torch wheel's files say, read without importing it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from anymps._errors import UnsupportedTorchError
from anymps.rules._versions import SUPPORTED, TorchVersion, parse_torch_version

_NATIVE_FUNCTIONS: Final = Path("packaged", "ATen", "native", "native_functions.yaml")
_ASSIGNMENT: Final = re.compile(r"^(__version__|git_version)\s*(?::[^=]+)?=\s*['\"]([^'\"]*)['\"]", re.MULTILINE)

# The dispatch keys for which the functional and in-place forms of a structured operator use the kernel of the `out`
# form; sparse keys do not (torchgen/model.py, STRUCTURED_DISPATCH_KEYS).
_STRUCTURED_KEYS: Final = frozenset({"CPU", "CUDA", "MPS", "XPU", "MTIA"})


@dataclass(frozen=True)
class Wheel:
    """An installed torch: where it lies, its version and the commit it was built from (full hash, may be empty)."""

    path: Path
    version: TorchVersion
    git_version: str


@dataclass
class Overload:
    """One entry of `native_functions.yaml`. `name` is `add.Tensor`; `dispatch` maps a dispatch key to a kernel name."""

    name: str
    schema: str
    dispatch: dict[str, str] = field(default_factory=dict)
    structured_delegate: str = ""
    structured: bool = False
    tags: frozenset[str] = frozenset()
    iterator: bool = False
    """The structured kernel inherits TensorIteratorBase."""

    @property
    def arguments(self) -> str:
        """The text between the schema's parentheses."""
        return self.schema[self.schema.index("(") + 1 : self.schema.rindex(") ->")]

    @property
    def tensor_arguments(self) -> int:
        """How many tensors the schema takes, `out` arguments aside; a list of tensors counts as two."""
        count, after_star = 0, False
        for part in (part.strip() for part in self.arguments.split(",")):
            after_star = after_star or part == "*"
            if part.startswith("Tensor") and not (after_star and "!)" in part):
                count += 2 if "[]" in part.split(" ")[0] else 1
        return count

    @property
    def is_view(self) -> bool:
        """The result shares the first argument's storage and nothing is written (`Tensor(a) self -> Tensor(a)`)."""
        return "(a" in self.arguments and "!" not in self.schema and "(a" in self.schema.rpartition("->")[2]


@lru_cache(maxsize=1)
def installed_torch() -> Wheel:
    """The torch that `import torch` would load.

    Raises UnsupportedTorchError if there is none or its version cannot be read.
    """
    spec = find_spec("torch")
    if spec is None or not spec.origin:
        raise UnsupportedTorchError(f"anymps: torch is not installed; install torch {SUPPORTED}")
    path = Path(spec.origin).parent
    try:
        text = (path / "version.py").read_text(encoding="utf-8")
    except OSError as error:
        raise UnsupportedTorchError(f"anymps: cannot read the torch version: {error}") from error
    values = dict(_ASSIGNMENT.findall(text))
    if "__version__" not in values:
        raise UnsupportedTorchError(f"anymps: {path / 'version.py'} names no torch version")
    return Wheel(path, parse_torch_version(values["__version__"]), values.get("git_version", ""))


@lru_cache(maxsize=1)
def native_functions() -> Mapping[str, Overload]:
    """Every overload in the installed wheel's `native_functions.yaml`, by name; treat the result as read-only.

    Raises UnsupportedTorchError if the wheel does not carry the file (`torchgen` is part of every torch wheel).
    """
    spec = find_spec("torchgen")
    if spec is None or not spec.origin:
        raise UnsupportedTorchError("anymps: the installed torch has no torchgen package; reinstall torch from a wheel")
    path = Path(spec.origin).parent / _NATIVE_FUNCTIONS
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UnsupportedTorchError(f"anymps: cannot read the operator list of torch: {error}") from error
    return parse_native_functions(text)


def parse_native_functions(text: str) -> dict[str, Overload]:
    """Read the text of a `native_functions.yaml`.

    This is not a YAML parser: the file is machine-regular (an entry starts with `- func:`, its keys are indented by two
    blanks, dispatch lines by four), and reading just that takes some 25 ms where a YAML library takes seconds.
    """
    overloads = {entry.name: entry for entry in _entries(text)}
    for entry in overloads.values():
        out = overloads.get(entry.structured_delegate)
        if out is not None:
            entry.iterator = out.iterator
            entry.structured = True
            inherited = {key: kernel for key, kernel in out.dispatch.items() if key in _STRUCTURED_KEYS}
            entry.dispatch = {**inherited, **entry.dispatch}
    return overloads


def _entries(text: str) -> Iterator[Overload]:
    entry: Overload | None = None
    in_dispatch = False
    for line in text.splitlines():
        if line.startswith("- func:"):
            if entry is not None:
                yield entry
            schema = line[7:].strip()
            entry = Overload(schema[: schema.index("(")], schema)
            in_dispatch = False
        elif entry is None or not line.startswith("  ") or line.lstrip().startswith("#"):
            continue
        elif line.startswith("    "):
            if in_dispatch and ":" in line:
                keys, _, kernel = line.partition(":")
                for key in keys.split(","):
                    entry.dispatch[key.strip()] = kernel.strip()
        else:
            key, _, value = line.strip().partition(":")
            in_dispatch = key == "dispatch"
            _set(entry, key, value.partition("#")[0].strip())
    if entry is not None:
        yield entry


def _set(entry: Overload, key: str, value: str) -> None:
    if key == "structured_delegate":
        entry.structured_delegate = value
    elif key == "structured":
        entry.structured = value == "True"
    elif key == "structured_inherits":
        entry.iterator = value == "TensorIteratorBase"
    elif key == "tags":
        entry.tags = frozenset(tag.strip() for tag in value.strip("[]").split(",") if tag.strip())
