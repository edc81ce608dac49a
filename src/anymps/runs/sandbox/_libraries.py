"""Redirects libraries that open files without Python to the layer, by the paths in their calls.

Each is changed once it has been imported. What is not known here is refused by the seal (`_seal.py`).
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final
from urllib.parse import quote, unquote

from anymps.runs.sandbox._layer import Layer

_WRITE, _UPDATE, _READ = "write", "update", "read"

_CALLS: Final[dict[str, tuple[tuple[str, int, str, str], ...]]] = {
    # module: (name in it, place of the path in the call, its keyword, what is done with the file)
    "torch": (
        ("_C.PyTorchFileWriter", 0, "file_name", _WRITE),
        ("_C.PyTorchFileReader", 0, "file_name", _READ),
        ("_C.import_ir_module", 1, "filename", _READ),
        ("UntypedStorage.from_file", 0, "filename", _UPDATE),
        ("from_file", 0, "filename", _UPDATE),
        ("_C.ScriptModule.save", 1, "filename", _WRITE),
        ("autograd.profiler.profile.export_chrome_trace", 1, "path", _WRITE),
    ),
    "safetensors": (
        ("serialize_file", 1, "filename", _WRITE),
        ("safe_open", 0, "filename", _READ),
    ),
    "sqlite3": (("connect", 0, "database", _UPDATE), ("dbapi2.connect", 0, "database", _UPDATE)),
    "h5py": (("File", 0, "name", _UPDATE),),
    "pyarrow": (
        ("OSFile", 0, "path", _UPDATE),
        ("memory_map", 0, "path", _READ),
        ("create_memory_map", 0, "path", _WRITE),
    ),
    "cv2": (("imwrite", 0, "filename", _WRITE), ("imread", 0, "filename", _READ)),
    "soundfile": (("SoundFile", 0, "file", _UPDATE),),
}


def divert_libraries(layer: Layer) -> None:
    """Change the libraries that are there, and each other one when it is imported. Nothing is undone."""
    for name in _CALLS:
        if name in sys.modules:
            _change(sys.modules[name], layer)
    sys.meta_path.insert(0, _Watcher(layer))


class _Watcher(MetaPathFinder):
    """Finds nothing itself; what the others find is changed after it has been imported."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a library that is to be changed."""
        if name not in _CALLS:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None and spec.loader is not None:
                loader: Any = spec.loader
                loader.exec_module = functools.partial(self._executed, loader.exec_module)
                return spec
        return None

    def _executed(self, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        execute(module)
        _change(module, self._layer)


def _change(module: ModuleType, layer: Layer) -> None:
    for name, place, keyword, what in _CALLS[module.__name__]:
        *path, last = name.split(".")
        owner: Any = module
        for part in path:
            owner = getattr(owner, part, None)
        real = getattr(owner, last, None)
        if real is None:
            continue
        if isinstance(real, type):
            stand_in: Any = _class(real, layer, place, keyword, what)
        else:
            stand_in = _call(real, layer, place, keyword, what)
        # A class method that is already bound to its class must not be bound again.
        setattr(owner, last, staticmethod(stand_in) if isinstance(owner, type) and place == 0 else stand_in)


def _call(real: Callable[..., Any], layer: Layer, place: int, keyword: str, what: str) -> Callable[..., Any]:
    @functools.wraps(real, updated=())
    def diverted(*args: Any, **kwargs: Any) -> Any:
        if len(args) > place:
            args = (*args[:place], _exchanged(layer, args[place], what), *args[place + 1 :])
        elif keyword in kwargs:
            kwargs[keyword] = _exchanged(layer, kwargs[keyword], what)
        return real(*args, **kwargs)

    return diverted


def _class(real: type, layer: Layer, place: int, keyword: str, what: str) -> Any:
    """A class whose instances are those of `real`, and of which what asks for its type sees `real`."""

    make = _call(real, layer, place, keyword, what)

    class Kind(type(real)):  # type: ignore[misc]
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return make(*args, **kwargs)

        def __instancecheck__(cls, one: object) -> bool:
            return isinstance(one, real)

        def __getattr__(cls, name: str) -> Any:
            return getattr(real, name)

    return Kind(real.__name__, (), {"__doc__": real.__doc__, "__module__": real.__module__})


def _exchanged(layer: Layer, path: Any, what: str) -> Any:
    """The path to use in place of the one in a call; what is no path stays as it is."""
    if not isinstance(path, (str, bytes)) and not hasattr(path, "__fspath__"):
        return path
    if path in (":memory:", b":memory:", ""):
        return path
    if isinstance(path, str) and path.startswith("file:"):  # SQLite's form, with its mode as a query
        place, mark, query = path.removeprefix("file:").partition("?")
        if "mode=memory" in query:
            return path
        place = "/" + place[2:].partition("/")[2] if place.startswith("//") else place
        place = _exchanged(layer, unquote(place), _READ if "mode=ro" in query else what)
        return f"file:{quote(os.path.abspath(place))}{mark}{query}"
    if what == _READ:
        key = layer.key(path)
        return path if key is None else layer.at(key)
    return layer.writable(path, keep=what == _UPDATE)
