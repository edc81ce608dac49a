"""Converts one checkpoint file: makes its tensors narrower, each in its place, and writes it again."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal

from anymps._errors import CheckpointError
from anymps._text import first_line, plural
from anymps.checkpoints._dtypes import NARROWER, Loss, dtype_name, is_known, narrowed
from anymps.checkpoints._names import named_tensors, walk
from anymps.checkpoints._place import Nowhere
from anymps.checkpoints._read import Checkpoint, printable, reading, safetensors
from anymps.checkpoints._report import Change, Report

if TYPE_CHECKING:
    import torch

To = Literal["safetensors"]
"""The format that torch files may be changed to."""

TORCH_SUFFIXES: Final = (".pt", ".pth", ".bin", ".ckpt")


def check_name(target: Path, kind: str) -> None:
    """Raise CheckpointError if the name of `target` promises another format than it gets."""
    if kind == "safetensors" and target.suffix in TORCH_SUFFIXES:
        raise CheckpointError(f"{target} would be a safetensors file: name it {target.stem}.safetensors")
    if kind != "safetensors" and target.suffix == ".safetensors":
        raise CheckpointError(f"{target} would be a file of torch.save: name it .pt, or add --to safetensors")


def convert_file(file: Checkpoint, out: BinaryIO, to: To | None, target: Path | None) -> Report:
    """Write `file`, converted, to `out`. `target` is only told in the report.

    Raises CheckpointError if it holds what cannot be converted, OSError if it cannot be written.
    """
    report = Report(str(file.path), None if target is None else str(target), to or file.format)
    with reading(file.path):
        _Narrowing(file, report).run()
        if to and file.format != to:
            file = _as_safetensors(file, report)
    report.old_bytes = file.path.stat().st_size
    report.new_bytes = _write(file, out)
    return report


@dataclass
class _Storage:
    """What tensors show: their names, and the elements made narrower, where they are."""

    names: list[str] = field(default_factory=list)
    loss: Loss = field(default_factory=Loss)
    narrow: torch.Tensor | None = None


class _Narrowing:
    """Sets the data of each tensor of a checkpoint. It stays a parameter, tied, with attributes."""

    def __init__(self, file: Checkpoint, report: Report) -> None:
        self._file = file
        self._report = report
        self._storages: dict[int, _Storage] = {}
        # A tensor may be there under several names. It is kept, so that no other one gets its number.
        self._done: dict[int, tuple[torch.Tensor, _Storage, Change]] = {}

    def run(self) -> None:
        import torch

        for name, value in walk(self._file.root):
            if isinstance(value, torch.Tensor):
                if id(value) not in self._done:
                    self._done[id(value)] = self._convert(name, value)
                _, storage, change = self._done[id(value)]
                storage.names.append(name)
                self._report.tensors += 1
                if change.old_dtype != change.new_dtype or change.old_device != change.new_device:
                    self._report.changes.append(replace(change, name=name))
            elif isinstance(value, torch.dtype) and dtype_name(value) in NARROWER:
                told = f"{printable(name)} is the type {dtype_name(value)} itself and was kept: mps refuses it"
                self._report.remarks.append(told)
            elif isinstance(value, (torch.TypedStorage, torch.UntypedStorage)):
                self._report.remarks.append(f"{printable(name)} is a storage without a tensor and was kept")
        for storage in self._storages.values():
            self._tell(storage)

    def _tell(self, storage: _Storage) -> None:
        if len(storage.names) > 1:
            self._report.ties.append(storage.names)
        names = ", ".join(map(printable, storage.names))
        for count, kind, became in (
            (storage.loss.overflowed, "value", "beyond float32 became inf"),
            (storage.loss.integers, "whole number", "above 2**24 changed, float32 cannot hold them"),
        ):
            if count:
                self._report.remarks.append(f"{names}: {plural(count, kind)} {became}")

    def _convert(self, name: str, tensor: torch.Tensor) -> tuple[torch.Tensor, _Storage, Change]:
        import torch

        self._check(name, tensor)
        old, shape = dtype_name(tensor.dtype), tuple(tensor.shape)
        new = NARROWER.get(old, old)
        strided = tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_meta
        key = tensor.untyped_storage()._cdata if strided else id(tensor)
        storage = self._storages.setdefault(key, _Storage())
        device = "meta" if tensor.is_meta else self._file.devices.get(key, "cpu")
        saved = 0
        if new != old:
            if strided:
                saved = tensor.nbytes // 2
                tensor.data = self._narrow(tensor, storage)
            elif tensor.is_meta:
                tensor.data = torch.empty_strided(shape, tensor.stride(), dtype=getattr(torch, new), device="meta")
            else:  # sparse or nested
                values = tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()
                saved = values.nbytes // 2
                values = torch.view_as_real(values) if values.is_complex() else values
                narrowed(values.flatten(), storage.loss)
                # Setting the data of a compressed sparse tensor would leave its values as they are.
                same = tensor.detach().to(getattr(torch, new)).requires_grad_(tensor.requires_grad)
                torch._C._swap_tensor_impl(tensor, same)
        return tensor, storage, Change(name, shape, old, new, device, "meta" if tensor.is_meta else "cpu", saved)

    def _check(self, name: str, tensor: torch.Tensor) -> None:
        path = self._file.path
        if tensor.is_quantized:
            raise CheckpointError(
                f"{path} holds quantized tensors ({printable(name)}), for which MPS has no kernels: "
                "save the model before it is quantized"
            )
        if not is_known(tensor.dtype):
            raise CheckpointError(f"{path} holds tensors of {tensor.dtype} ({printable(name)}), which MPS cannot hold")

    def _narrow(self, tensor: torch.Tensor, storage: _Storage) -> torch.Tensor:
        """The same view of the storage made narrower."""
        import torch

        if storage.narrow is None:
            wide = torch.empty(0, dtype=torch.float64).set_(tensor.untyped_storage())
            storage.narrow = narrowed(wide, storage.loss)
        elements = storage.narrow
        if tensor.is_complex():
            elements = elements.view(torch.complex64)
        view = elements.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        view = view.conj() if tensor.is_conj() else view
        return torch._neg_view(view) if tensor.is_neg() else view


def _as_safetensors(file: Checkpoint, report: Report) -> Checkpoint:
    """The tensors by name. Equal views of one storage are written once, and the other names go into the metadata:
    so does safetensors.torch.save_model, and its load_model ties them again."""
    import torch

    metadata = {"format": "pt"}
    kept: dict[tuple[object, ...], str] = {}
    parts: dict[str, torch.Tensor] = {}
    owners = Counter(tensor.untyped_storage()._cdata for tensor in named_tensors(file).values())
    for name, tensor in named_tensors(file).items():
        owner = tensor.untyped_storage()._cdata
        first = kept.setdefault((owner, tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()), name)
        if first != name:
            metadata[name] = first
            report.remarks.append(
                f"{printable(name)} is {printable(first)} and is in the file only under that name: "
                "safetensors.torch.load_model ties them"
            )
        else:
            alone = owners[owner] == 1 and tensor.is_contiguous()
            parts[name] = tensor.detach() if alone else tensor.detach().clone(memory_format=torch.contiguous_format)
    return Checkpoint(file.path, "safetensors", parts, metadata)


def _write(file: Checkpoint, out: BinaryIO) -> int:
    """Write what a file holds now. Returns how large it became. Raises OSError, and CheckpointError."""
    import torch

    try:
        if file.format != "safetensors":
            torch.save(file.root, out)
        else:
            _write_safetensors(file, out)
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
        told = printable(first_line(str(error)) or type(error).__name__)
        raise CheckpointError(f"{file.path} cannot be written as {file.format}: {told}") from None
    return out.size if isinstance(out, Nowhere) else os.path.getsize(out.name)


def _write_safetensors(file: Checkpoint, out: BinaryIO) -> None:
    library, metadata = safetensors().torch, file.metadata or None
    if isinstance(out, Nowhere):
        out.write(library.save(file.root, metadata))
        return
    mode = os.fstat(out.fileno()).st_mode
    library.save_file(file.root, out.name, metadata)  # it may put another file under the name, for its owner alone
    os.chmod(out.name, mode)
    with open(out.name, "rb+") as written:
        os.fsync(written.fileno())
