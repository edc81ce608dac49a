"""The pickle inside a torch file as plain data: read without importing or calling anything it names, and written again.

A pickle is a program. Here every class and function that it names becomes a `Named`, every call a `Call`, every storage
a `Storage`: inert objects that say what loading the file would have done. Names that `torch.load(weights_only=True)`
would not take are refused, so the file that is written loads with it.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final, NoReturn

from anymps._errors import CheckpointError
from anymps.checkpoints._dtypes import BY_STORAGE, DTYPES, Dtype, for_mps
from anymps.checkpoints._reading import printable


class ForeignClassError(CheckpointError):
    """A torch file names a class or function that only running the file's code could restore."""


class Named:
    """A class or function that the pickle names; nothing is imported for it."""

    __slots__ = ("module", "name")
    module: str
    name: str

    def __init__(self, module: str, name: str) -> None:
        object.__setattr__(self, "module", module)
        object.__setattr__(self, "name", name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a name cannot be changed")

    def __setstate__(self, state: object) -> NoReturn:
        raise ValueError("a state for a class")

    def __call__(self, *arguments: Any) -> Call:
        return Call(self, arguments)

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Call:
    """A call that the pickle would make, with what it would do to the result: `items` and `state` of an OrderedDict."""

    __slots__ = ("arguments", "function", "items", "state")

    def __init__(self, function: Named, arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.items: dict[Any, Any] = {}
        self.state: Any = None

    @property
    def is_dict(self) -> bool:
        """Whether it makes an OrderedDict."""
        return str(self.function) == "collections.OrderedDict"

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self.is_dict:
            raise ValueError(f"items for {self.function}")
        self.items[key] = value

    def __setstate__(self, state: Any) -> None:
        if not self.is_dict:
            raise ValueError(f"a state for {self.function}")
        self.state = state


class Storage:
    """A run of `count` elements in the file; `kind` is the class that the file names for it."""

    __slots__ = ("count", "dtype", "key", "kind", "location")

    def __init__(self, kind: Named, key: str, location: str, count: int) -> None:
        self.kind = kind
        self.key = key
        self.location = location
        self.count = count
        self.dtype: Dtype = BY_STORAGE.get(kind.name, DTYPES["uint8"])

    def __setstate__(self, state: object) -> NoReturn:
        raise ValueError("a state for a storage")

    @property
    def is_untyped(self) -> bool:
        """Whether it is plain bytes: its tensors name their own type."""
        return self.kind.name == "UntypedStorage"

    @property
    def size(self) -> int:
        """Its bytes in the file that is read."""
        return self.count * self.dtype.itemsize

    @property
    def new_size(self) -> int:
        """Its bytes in the file that is written."""
        return self.count * for_mps(self.dtype).itemsize


PLAIN_TENSORS: Final = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3")
"""Functions of torch._utils that make a tensor from a storage, an offset, a shape and strides."""

# The names that torch.load(weights_only=True) takes (torch 2.13, torch/_weights_only_unpickler.py), less quantized
# tensors and tensor subclasses, whose parts are not known to us. Protocol 2 writes Python 2's name of `builtins`.
_CALLED: Final = {
    *(f"torch._utils.{name}" for name in PLAIN_TENSORS),
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_nested_tensor",
    "torch._utils._rebuild_meta_tensor_no_storage",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
    "torch._tensor._rebuild_from_type_v2",
    "torch.serialization._get_layout",
    "torch.nn.parameter.Parameter",
    "torch.Tensor",
    "torch.Size",
    "torch.device",
    "collections.OrderedDict",
    "collections.Counter",
    "_codecs.encode",
    *(f"{module}.{name}" for module in ("builtins", "__builtin__") for name in ("set", "bytearray", "complex")),
}
_KNOWN: Final = _CALLED | {f"torch.{name}" for name in DTYPES}
_STORAGE_MODULES: Final = ("torch", "torch.cuda", "torch.storage")
_QUANTIZED: Final = ("QInt8Storage", "QInt32Storage", "QUInt8Storage", "QUInt4x2Storage", "QUInt2x4Storage")

# torch.save writes none of these: names from a registry of the process, buffers and references from outside the file,
# and a type that torch.load(weights_only=True) does not read.
_FORBIDDEN: Final = ("EXT1", "EXT2", "EXT4", "PERSID", "NEXT_BUFFER", "READONLY_BUFFER", "FROZENSET")


class _Bounded:
    """A file that is never asked for more than it has, so that a length in a pickle cannot take memory."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size

    def read(self, count: int) -> bytes:
        return self._file.read(max(0, min(count, self._size - self._file.tell())))

    def readline(self) -> bytes:
        return self._file.readline(1 << 16)

    def tell(self) -> int:
        return self._file.tell()


def read_structure(
    file: BinaryIO, size: int, path: Path, load_storage: Callable[[tuple[Any, ...]], Storage] | None = None
) -> Any:
    """Read the one pickle that starts where `file` (of `size` bytes) stands, and leave the file behind it.

    Raises ForeignClassError for a name that is not taken, CheckpointError for anything else that cannot be read.
    """
    start = file.tell()
    try:
        _scan(_Bounded(file, size))
        end = file.tell()
        file.seek(start)
        reader = _Reader(io.BytesIO(file.read(end - start)), path, load_storage)
        result = reader.load()
        file.seek(end)
        return result
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise CheckpointError(f"{path} is nested too deep to be read") from None
    except Exception as error:
        # Whatever a damaged or hostile pickle makes the reader raise is about the file.
        text = printable(str(error)) or type(error).__name__
        raise CheckpointError(f"{path} is damaged: its pickle cannot be read ({text})") from None


def _scan(file: _Bounded) -> None:
    """Go through the instructions once, before any is followed.

    The reader in C makes room for as many values as an instruction says: a number in a memo's name may take all memory.
    """
    for count, (operation, argument, _) in enumerate(pickletools.genops(file)):  # type: ignore[arg-type]
        if operation.name in _FORBIDDEN:
            raise ValueError(f"instruction {operation.name}")
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= int(argument or 0) <= count:
            raise ValueError(f"memo {argument} after {count} instructions")


class _Reader(pickle.Unpickler):
    def __init__(
        self, file: BinaryIO, path: Path, load_storage: Callable[[tuple[Any, ...]], Storage] | None = None
    ) -> None:
        # As torch.load: text of Python 2 is read as UTF-8 (torch 2.13, torch/serialization.py).
        super().__init__(file, encoding="utf-8")
        self._path = path
        self._load_storage = load_storage
        self._names: dict[tuple[str, str], Named] = {}

    def find_class(self, module: str, name: str) -> Named:
        """The inert stand-in of a name; pickle calls this for every one, before anything is done with it."""
        full = f"{module}.{name}"
        if full in _KNOWN or (module in _STORAGE_MODULES and (name in BY_STORAGE or name == "UntypedStorage")):
            return self._names.setdefault((module, name), Named(module, name))
        if full == "torch._utils._rebuild_qtensor" or name in _QUANTIZED or full.startswith("torch.per_"):
            raise CheckpointError(
                f"{self._path} holds quantized tensors ({printable(full)}), for which MPS has no kernels: "
                "save the model before it is quantized"
            )
        if module == "torch" and name.startswith(("bits", "float", "int", "uint", "quint", "qint")):
            raise CheckpointError(f"{self._path} holds tensors of {printable(full)}, which MPS cannot hold")
        raise ForeignClassError(
            f"{self._path} names {printable(full)}, which cannot be restored without running code from the file: "
            "save it again with only the state dict and plain values"
        )

    def persistent_load(self, pid: Any) -> Storage:
        if self._load_storage is None or type(pid) is not tuple or not pid or pid[0] != "storage":
            raise ValueError("a reference to something that is not a storage")
        return self._load_storage(pid)


def to_storage(kind: Any, key: Any, location: Any, count: Any, known: dict[str, Storage]) -> Storage:
    """The storage that a persistent id names; one key is one object. Raises ValueError if it makes no sense."""
    if type(kind) is not Named or not kind.name.endswith("Storage"):
        raise ValueError("a storage without a type")
    if type(key) is not str or not (key.isascii() and key.isdecimal()):
        raise ValueError(f"a storage with the key {key!r}")
    if type(location) is not str or type(count) is not int or not 0 <= count < 1 << 60:
        raise ValueError(f"storage {key} with the size {count!r} on {location!r}")
    storage = known.setdefault(key, Storage(kind, key, location, count))
    if (storage.kind.name, storage.count) != (kind.name, count):
        raise ValueError(f"storage {key} is described in two ways")
    return storage


def written_structure(root: Any, path: Path) -> bytes:
    """The pickle of a structure, as torch.save writes it (protocol 2), with the storages' new types and devices.

    Raises CheckpointError if it is nested too deep.
    """
    buffer = io.BytesIO()
    try:
        _Writer(buffer, protocol=2).dump(root)
    except RecursionError:
        raise CheckpointError(f"{path} is nested too deep to be written") from None
    return buffer.getvalue()


# The pickler in Python: the one in C imports each class that it writes by name, and ours are not to be imported. Type
# checkers know its name and none of its methods.
_Pickler: Any = pickle._Pickler


class _Writer(_Pickler):  # type: ignore[misc]
    def _save_named(self, obj: Named) -> None:
        self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        self.memoize(obj)

    dispatch: ClassVar[dict[Any, Any]] = {**_Pickler.dispatch, Named: _save_named}

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, Storage):
            return None
        kind = obj.kind if obj.is_untyped else Named("torch", for_mps(obj.dtype).storage or "")
        return ("storage", kind, obj.key, "cpu", obj.count)

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, Call):
            return NotImplemented
        return obj.function, obj.arguments, obj.state, None, iter(obj.items.items()) if obj.items else None
