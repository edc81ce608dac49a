"""A whole conversion: a checkpoint is read, made narrower, and written under another name, which it gets when whole."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal

from anymps._atomic import check_not_read_only, replacing
from anymps._errors import CheckpointError
from anymps._text import first_line
from anymps.checkpoints._narrow import Report, joined, narrow
from anymps.checkpoints._read import Checkpoint, read, reading, safetensors, shown

if TYPE_CHECKING:
    import torch

_TORCH_SUFFIXES: Final = (".pt", ".pth", ".bin", ".ckpt")


def convert(source: Path, target: Path, *, to: Literal["safetensors"] | None = None, force: bool = False) -> Report:
    """Write the checkpoint file `source` to `target` so that it loads on mps: no float64, no other devices.

    `to` changes the format of a torch file. The source is not changed, and a target that is there is replaced, with
    `force`, only when all is whole. Raises CheckpointError for everything that is wrong with either.
    """
    if not os.path.exists(source):
        raise CheckpointError(f"there is no checkpoint {source}")
    if source.is_dir():
        raise CheckpointError(f"{source} is a directory: convert its files one by one")
    _check_places(source, target, force)
    file = read(source)
    _check_name(target, to or file.format)
    report = Report(str(source), str(target), to or file.format, sorted(file.devices))
    with reading(source):
        narrow(file, report)
        if to and file.format != to:
            file = _as_safetensors(file, report)
    # A link may lead into a cache that other programs share: it is replaced itself.
    with _writing(target), replacing(target, follow=False) as out:
        _write(file, out)
    report.old_bytes, report.new_bytes = source.stat().st_size, target.stat().st_size
    return report


def _check_places(source: Path, target: Path, force: bool) -> None:
    """Raise CheckpointError unless `target` may be written: apart from the source, and not there without `force`."""
    if os.path.realpath(source) == os.path.realpath(target) or (
        os.path.exists(target) and os.path.samefile(source, target)
    ):
        raise CheckpointError(f"{target} is {source} itself: name another place, the source is never changed")
    if not os.path.isdir(target.parent):
        raise CheckpointError(f"{target} cannot be written: there is no directory {target.parent}")
    if not os.path.lexists(target):
        return
    if not force:
        raise CheckpointError(f"{target} already exists: --force replaces it")
    with _writing(target):
        check_not_read_only(target)
    if not (target.is_symlink() or target.is_file()):
        raise CheckpointError(f"{target} is not a file, and {source} becomes one: name another place")


def _check_name(target: Path, kind: str) -> None:
    """Raise CheckpointError if the name of `target` promises another format than it gets."""
    if kind == "safetensors" and target.suffix in _TORCH_SUFFIXES:
        raise CheckpointError(f"{target} would be a safetensors file: name it {target.stem}.safetensors")
    if kind != "safetensors" and target.suffix == ".safetensors":
        raise CheckpointError(f"{target} would be a file of torch.save: name it .pt, or add --to safetensors")


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """What the system refuses in the block is a CheckpointError about `target`."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{target} cannot be written: {error.strerror or error}") from None


def _named_tensors(file: Checkpoint) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint that holds nothing else: a dict of names, as safetensors files are.

    Raises CheckpointError naming the first thing that is not one.
    """
    import torch

    path = file.path
    if not isinstance(file.root, dict):
        raise CheckpointError(
            f"{path} is not a dict of tensors, which is all that safetensors can hold: leave out --to"
        )
    for key, value in file.root.items():
        label = shown(joined("", key))
        plain = isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type == "cpu"
        if not isinstance(key, str) or not plain or value.is_nested:
            raise CheckpointError(
                f"{path} holds more than named tensors ({label}: {type(value).__name__}), which safetensors cannot: "
                "convert without --to, or save only the state dict"
            )
        if value.is_conj() or value.is_neg():
            raise CheckpointError(f"{path}: {label} is a lazily conjugated view: save it after resolve_conj()")
    return file.root


def _as_safetensors(file: Checkpoint, report: Report) -> Checkpoint:
    """The tensors by name. Equal views of one storage are written once, and the other names go into the metadata:
    so does safetensors.torch.save_model, and its load_model ties them again."""
    import torch

    metadata = {"format": "pt"}
    kept: dict[tuple[object, ...], str] = {}
    parts: dict[str, torch.Tensor] = {}
    named = _named_tensors(file)
    owners = Counter(tensor.untyped_storage()._cdata for tensor in named.values())
    for name, tensor in named.items():
        owner = tensor.untyped_storage()._cdata
        first = kept.setdefault((owner, tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()), name)
        if first != name:
            metadata[name] = first
            report.remarks.append(
                f"{shown(name)} is {shown(first)} and is in the file only under that name: "
                "safetensors.torch.load_model ties them"
            )
        else:
            alone = owners[owner] == 1 and tensor.is_contiguous()
            parts[name] = tensor.detach() if alone else tensor.detach().clone(memory_format=torch.contiguous_format)
    return Checkpoint(file.path, "safetensors", parts, metadata)


def _write(file: Checkpoint, out: BinaryIO) -> None:
    """Write what a file holds now. Raises OSError, and CheckpointError."""
    import torch

    try:
        if file.format != "safetensors":
            torch.save(file.root, out)
        else:
            mode = os.fstat(out.fileno()).st_mode
            # It may put another file under the name, for its owner alone.
            safetensors().torch.save_file(file.root, out.name, file.metadata or None)
            os.chmod(out.name, mode)
            with open(out.name, "rb+") as written:
                os.fsync(written.fileno())
    except RecursionError:
        raise CheckpointError(f"{file.path} is nested too deep") from None
    except (OSError, CheckpointError):
        raise
    except Exception as error:
        # Both libraries hide the system's refusal: torch behind an error of its own, safetensors in a text.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number:
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from None
        told = shown(first_line(str(error)) or type(error).__name__)
        raise CheckpointError(f"{file.path} cannot be written as {file.format}: {told}") from None
