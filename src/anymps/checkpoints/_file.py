"""Converts one checkpoint file: its kind, what is written, and what changed."""

from __future__ import annotations

import math
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Literal

from anymps._errors import CheckpointError
from anymps._text import plural
from anymps.checkpoints._dtypes import Dtype, for_mps
from anymps.checkpoints._reading import printable, reading
from anymps.checkpoints._report import Change, FileReport
from anymps.checkpoints._safetensors import Part, SafetensorsFile, write_safetensors
from anymps.checkpoints._structure import Storage
from anymps.checkpoints._tensors import View, find_tensors, named_tensors
from anymps.checkpoints._torch_file import LEGACY_START, ZIP_START, LegacyFile, TorchFile, ZipFile, write_torch
from anymps.checkpoints._values import Loss, converted

To = Literal["safetensors"]
"""The format that torch files may be changed to."""

CheckpointFile = TorchFile | SafetensorsFile

TORCH_SUFFIXES: Final = (".pt", ".pth", ".bin", ".ckpt")


def format_of(path: Path) -> type[CheckpointFile]:
    """What reads a file, by its first bytes. Raises CheckpointError if nothing does, or it cannot be read."""
    with reading(path):
        if not path.exists():
            raise CheckpointError(f"there is no checkpoint {path}")
        if not stat.S_ISREG(path.stat().st_mode):
            raise CheckpointError(f"{path} is not a file")
        with path.open("rb") as file:
            start = file.read(len(LEGACY_START))
    if start.startswith(ZIP_START):
        return ZipFile
    if start == LEGACY_START:
        return LegacyFile
    if start[8:9] == b"{":
        return SafetensorsFile
    if not start:
        raise CheckpointError(f"{path} is empty")
    raise CheckpointError(f"{path} is neither a safetensors file nor a torch.save file, or its start is damaged")


@contextmanager
def open_checkpoint(path: Path) -> Iterator[CheckpointFile]:
    """Open a file and read what it holds, but for the tensors' bytes.

    Raises CheckpointError if it cannot be read, ForeignClassError if it names a class that only its own code restores.
    """
    read = format_of(path)
    with reading(path):
        file = path.open("rb")
    with file:
        yield read(path, file)


def check_name(target: Path, kind: str) -> None:
    """Raise CheckpointError if the name of `target` promises another format than it gets."""
    if kind == "safetensors" and target.suffix in TORCH_SUFFIXES:
        raise CheckpointError(f"{target} would be a safetensors file: name it {target.stem}.safetensors")
    if kind != "safetensors" and target.suffix == ".safetensors":
        raise CheckpointError(f"{target} would be a file of torch.save: name it .pt, or add --to safetensors")


def convert_file(file: CheckpointFile, out: BinaryIO, to: To | None, target: Path | None) -> FileReport:
    """Write `file`, converted, to `out`. `target` is only told in the report.

    Raises CheckpointError if it cannot be read through, or holds what cannot be converted.
    """
    report = FileReport(str(file.path), None if target is None else str(target), to or file.format)
    if isinstance(file, SafetensorsFile):
        _convert_safetensors(file, out, report)
    else:
        _convert_torch(file, out, to, report)
    report.old_bytes = file.path.stat().st_size
    report.new_bytes = out.seek(0, 2)
    return report


def _convert_safetensors(file: SafetensorsFile, out: BinaryIO, report: FileReport) -> None:
    losses: dict[str, Loss] = {}
    parts = []
    for entry in file.entries:
        loss = losses[entry.name] = Loss()
        pieces = converted(file.pieces(entry), entry.dtype, loss)
        parts.append(Part(entry.name, for_mps(entry.dtype), entry.shape, pieces))
        _note(report, entry.name, entry.dtype, entry.shape, "cpu")
    report.names = {part.name: part.size for part in parts}
    write_safetensors(out, parts, file.metadata)
    for name, loss in losses.items():
        _note_loss(report, name, loss)


def _convert_torch(file: TorchFile, out: BinaryIO, to: To | None, report: FileReport) -> None:
    contents = find_tensors(file.root, file.path)
    names: dict[str, list[str]] = {}
    for name, view in contents.tensors:
        _note(report, name, view.dtype, view.shape, view.device)
        if view.storage is not None:
            names.setdefault(view.storage.key, []).append(name)
    report.ties = [shared for shared in names.values() if len(shared) > 1]
    report.remarks += [printable(remark) for remark in contents.remarks]
    if to is None:
        losses = write_torch(out, file)
        report.names = {name: view.elements * for_mps(view.dtype).itemsize for name, view in contents.tensors}
    else:
        losses = _write_as_safetensors(out, file, report)
    for key, loss in losses.items():
        _note_loss(report, ", ".join(names.get(key, ["a storage without a tensor"])), loss)


def _write_as_safetensors(out: BinaryIO, file: TorchFile, report: FileReport) -> dict[str, Loss]:
    """The tensors by name. Equal views of one storage are written once, and the other names go into the metadata:
    so does safetensors.torch.save_model, and its load_model ties them again."""
    metadata = {"format": "pt"}
    losses: dict[str, Loss] = {}
    kept: dict[tuple[object, ...], str] = {}
    parts: list[Part] = []
    for name, view in named_tensors(file.root, file.path).items():
        storage = view.storage
        assert storage is not None  # a plain view has one
        new = for_mps(view.dtype)
        if new.safetensors is None:
            raise CheckpointError(f"{file.path}: safetensors has no type {new.name} ({printable(name)})")
        first = kept.setdefault((storage.key, view.dtype, view.offset, view.shape, view.strides), name)
        if first != name:
            metadata[name] = first
            report.dropped.add(name)
            report.remarks.append(
                f"{printable(name)} is {printable(first)} and is in the file only under that name: "
                "safetensors.torch.load_model ties them"
            )
            continue
        loss = losses.setdefault(storage.key, Loss())
        parts.append(Part(name, new, view.shape, _elements(file, storage, view, loss)))
        report.names[name] = parts[-1].size
    write_safetensors(out, parts, metadata)
    return losses


def _elements(file: TorchFile, storage: Storage, view: View, loss: Loss) -> Iterator[bytes | bytearray]:
    """The elements of a view in order, converted. Only a view of a part of a storage needs the storage in memory."""
    if view.offset == 0 and view.is_contiguous and view.elements * view.dtype.itemsize == storage.size:
        yield from converted(file.pieces(storage), view.dtype, loss)
        return
    import torch

    whole = bytearray().join(converted(file.pieces(storage), view.dtype, loss))
    if not view.elements:
        return
    dtype = getattr(torch, for_mps(view.dtype).name)
    elements = torch.frombuffer(whole, dtype=dtype).as_strided(view.shape, view.strides, view.offset)
    result = bytearray(view.elements * dtype.itemsize)
    torch.frombuffer(result, dtype=dtype).copy_(elements.reshape(-1))
    yield result


def _note(report: FileReport, name: str, dtype: Dtype, shape: tuple[int, ...], device: str) -> None:
    report.tensors += 1
    new = for_mps(dtype)
    new_device = "meta" if device == "meta" else "cpu"
    if new is dtype and device == new_device:
        return
    saved = 0 if device == "meta" else math.prod(shape) * (dtype.itemsize - new.itemsize)
    report.changes.append(Change(name, shape, dtype.name, new.name, device, new_device, saved))


def _note_loss(report: FileReport, name: str, loss: Loss) -> None:
    if loss.overflowed:
        report.remarks.append(f"{printable(name)}: {plural(loss.overflowed, 'value')} beyond float32 became inf")
    if loss.integers:
        report.remarks.append(
            f"{printable(name)}: {plural(loss.integers, 'whole number')} above 2**24 changed, float32 cannot hold them"
        )
