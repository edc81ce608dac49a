"""A whole conversion: torch and safetensors read a checkpoint, it is made narrower, and written beside the target.

No code of the file runs, and whatever fails is one line about the file.
"""

from __future__ import annotations

import os
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal

from anymps._atomic import check_writable, replacing
from anymps._errors import CheckpointError
from anymps._text import clean, first_line
from anymps.checkpoints._narrow import Report, narrow

if TYPE_CHECKING:
    import torch

_ROOM: Final = 1 << 29
"""Bytes that a file may take beyond its tensors: their names, and all else in it."""
_STARTS: Final = (b"PK\x03\x04", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9")
"""Of the files of torch.save: an archive, or the pickled number that torch before 1.6 wrote first."""
_TORCH_SUFFIXES: Final = (".pt", ".pth", ".bin", ".ckpt")


def convert(source: Path, target: Path, *, to: Literal["safetensors"] | None = None, force: bool = False) -> Report:
    """Write the checkpoint file `source` to `target` so that it loads on mps: no float64, no other devices.

    `to` changes the format of a torch file. The source is not changed, and a target that is there is replaced, with
    `force`, only when all is whole. Raises CheckpointError for everything that is wrong with either.
    """
    if not os.path.isfile(source):  # the method of a path raises for a name that is too long
        there = os.path.exists(source)
        raise CheckpointError(f"{source} is not a file" if there else f"there is no checkpoint {source}")
    import torch  # noqa: F401 - while memory is not bounded yet: a build for CUDA takes gigabytes

    with _reading(source):
        with source.open("rb") as file:
            start = file.read(9)
        kind = "safetensors" if start[8:] == b"{" else "torch"
        if kind == "torch" and not start.startswith(_STARTS):
            raise CheckpointError(f"{source} is neither a safetensors file nor a torch.save file")
        report = Report(str(source), str(target), to or kind, [])
        _check_target(source, target, report.format, force)
        metadata = {"format": "pt"}
        if kind == "torch":
            root = _read_torch(source, report, archive=start.startswith(_STARTS[0]))
        else:
            root, metadata = _read_safetensors(source)
        narrow(root, report)
        if kind != report.format:
            root = _named_tensors(root, metadata, report)
    # A link may lead into a cache that other programs share: it is replaced itself.
    with _writing(target), replacing(target, follow=False) as out:
        _write(root, metadata, report.format, out)
    report.old_bytes, report.new_bytes = source.stat().st_size, target.stat().st_size
    return report


def _check_target(source: Path, target: Path, kind: str, force: bool) -> None:
    """Raise CheckpointError unless `target` may be written, is not the source, and is named by its format."""
    if os.path.realpath(source) == os.path.realpath(target) or (target.exists() and target.samefile(source)):
        raise CheckpointError(f"{target} is {source} itself: name another place, the source is never changed")
    if os.path.lexists(target) and not force:
        raise CheckpointError(f"{target} already exists: --force replaces it")
    with _writing(target):
        check_writable(target)
    if kind == "safetensors" and target.suffix in _TORCH_SUFFIXES:
        raise CheckpointError(f"{target} would be a safetensors file: name it {target.stem}.safetensors")
    if kind == "torch" and target.suffix == ".safetensors":
        raise CheckpointError(f"{target} would be a file of torch.save: name it .pt, or add --to safetensors")


def _read_torch(path: Path, report: Report, *, archive: bool) -> Any:
    """What a file of torch.save holds; the tensors of an archive are mapped, and read when they are used."""
    import torch

    rest = path.stat().st_size
    devices: set[str] = set()
    if archive:
        _check_archive(path)

    def keep(storage: Any, device: str) -> Any:
        """Take each storage as it is, and note its device. Records that lie in one another would make a larger file."""
        nonlocal rest
        rest -= storage.nbytes()
        if rest < 0:
            raise ValueError("its storages are larger than the file")
        devices.add(str(device))  # a hostile file may name anything
        return storage

    root = torch.load(path, map_location=keep, weights_only=True, mmap=archive)
    report.devices = sorted(devices - {"cpu"})
    return root


def _check_archive(path: Path) -> None:
    """Refuse records that are compressed or overlap, and bytes that changed on the disk: torch checks neither."""
    with zipfile.ZipFile(path) as archive:
        records = archive.infolist()
        size = sum(record.file_size for record in records)
        if size > path.stat().st_size or any(record.compress_type for record in records):
            raise ValueError("its records are compressed or overlap")
        wrong = archive.testzip()
    if wrong is not None:
        raise ValueError(f"the checksum of {wrong} is wrong")


def _read_safetensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def _named_tensors(root: Any, metadata: dict[str, str], report: Report) -> dict[str, torch.Tensor]:
    """The tensors by name. Equal views of one storage are written once, and the other names go into the metadata:
    so does safetensors.torch.save_model, and its load_model ties them again."""
    import torch

    names: dict[tuple[object, ...], str] = {}
    owners: set[int] = set()
    parts: dict[str, torch.Tensor] = {}
    for name, tensor in root.items() if isinstance(root, dict) else [("all of it", root)]:
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise CheckpointError(
                f"{report.source} holds more than named tensors ({clean(str(name))}: {type(tensor).__name__}), which "
                "safetensors cannot: convert without --to, or save only the state dict"
            )
        owner = tensor.untyped_storage()._cdata
        first = names.setdefault((owner, tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()), name)
        if first != name:
            metadata[name] = first
            report.remarks.append(
                f"{clean(name)} is {clean(first)} and is in the file only under that name: "
                "safetensors.torch.load_model ties them"
            )
            continue
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
        parts[name] = plain.clone() if owner in owners else plain
        owners.add(owner)
    return parts


def _write(root: Any, metadata: dict[str, str], kind: str, out: BinaryIO) -> None:
    """Write what a file holds now. Raises OSError, and whatever the libraries raise."""
    import torch

    if kind == "torch":
        torch.save(root, out)
        return
    from safetensors.torch import save_file

    mode = os.fstat(out.fileno()).st_mode
    save_file(root, out.name, metadata or None)  # another file may get this name, for its owner alone
    os.chmod(out.name, mode)
    with open(out.name, "rb+") as written:
        os.fsync(written.fileno())


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever a damaged or hostile file makes the libraries raise in the block is a CheckpointError about `path`."""
    try:
        with _bounded_memory(3 * path.stat().st_size + _ROOM), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what the file holds; none of it is to be used
            yield
    except CheckpointError:
        raise
    except Exception as error:
        text = str(error)
        code = re.search(r"GLOBAL (\S+)", text)
        if code and "_rebuild_qtensor" not in text:
            raise CheckpointError(
                f"{path} names {clean(code[1])[:200]}, which cannot be restored without running code from the file: "
                "save it again with only the state dict and plain values"
            ) from None
        if isinstance(error, MemoryError) or "can't allocate memory" in text:
            raise CheckpointError(f"{path} takes far more memory than its size, and is not read") from None
        raise CheckpointError(f"{path} cannot be read: {_reason(error)}") from None


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """What the system or a library refuses in the block is a CheckpointError about `target`."""
    try:
        yield
    except Exception as error:
        raise CheckpointError(f"{target} cannot be written: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    """Why something failed, on one line. Torch hides what the system refused behind an error of its own."""
    error = error.__context__ if isinstance(error.__context__, OSError) else error
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, ModuleNotFoundError):
        return f"{error} (pip install safetensors numpy)"
    text = str(error).rpartition("WeightsUnpickler error: ")[2]
    return clean(first_line(text) or type(error).__name__)[:200]


@contextmanager
def _bounded_memory(more: int) -> Iterator[None]:
    """No more than so many bytes are allocated in the block, where the system can hold a process to that (Linux)."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_DATA, (limit if soft == resource.RLIM_INFINITY else min(limit, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
