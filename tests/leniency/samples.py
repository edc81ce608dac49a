"""Torch's own sample inputs of every operator, each changed a little: dtypes, shapes, numbers, words."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from leniency.calls import DTYPES, NUMBERS, SCALARS, Call

_SAMPLES: Final = 40
_MOST_ELEMENTS: Final = 4096
_WORDS: Final = ("sum", "mean", "none", "amax", "constant", "reflect", "max")
# Beginnings of names: they give out memory as it was, are about other devices, or end the process on the CPU.
_LEFT_OUT: Final = (
    "_native_batch_norm_legit", "_unsafe", "as_strided", "empty", "from_numpy", "jiterator", "new_empty",
    "pca_lowrank", "resize", "set_", "svd_lowrank", "to_sparse",
)  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """A recurrent layer, which the database lacks: an operator with one sample."""

    full_name: str
    op: Callable[..., Any]
    arguments: tuple[Any, ...]
    inplace_variant: None = None

    def supports_dtype(self, dtype: torch.dtype, device: str) -> bool:
        """Whether there are samples of a dtype."""
        return dtype == torch.float32

    def sample_inputs(self, device: str, dtype: torch.dtype) -> Iterator[Arguments]:
        """The sample."""
        yield Arguments(self.arguments[0], self.arguments[1:])


@dataclass(frozen=True)
class Arguments:
    """A sample, as the database has them."""

    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


def operators() -> list[Any]:
    """The operators of torch's database that are called, and recurrent layers."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if not op.name.startswith(_LEFT_OUT)] + _recurrent()


def _recurrent() -> list[Layer]:
    size, hidden, batch = 3, 4, 2
    source = torch.ones(5, batch, size)

    def parameters(gates: int, layers: int) -> list[torch.Tensor]:
        widths = [size] + [hidden] * (layers - 1)
        rows = gates * hidden
        shapes = [shape for width in widths for shape in ((rows, width), (rows, hidden), (rows,), (rows,))]
        return [torch.ones(shape) for shape in shapes]

    def layer(name: str, gates: int, layers: int, dropout: float) -> Layer:
        state = torch.ones(layers, batch, hidden)
        states = [state, state] if name == "lstm" else state
        options = (True, layers, dropout, True, False, False)
        return Layer(name, getattr(torch, name), (source, states, parameters(gates, layers), *options))

    def cell(name: str, gates: int) -> Layer:
        state = torch.ones(batch, hidden)
        states = [state, state] if name == "lstm_cell" else state
        return Layer(name, getattr(torch, name), (source[0], states, *parameters(gates, 1)))

    return [
        layer("lstm", 4, 2, 0.5), layer("gru", 3, 1, 0.0), layer("rnn_tanh", 1, 2, 0.5),
        cell("lstm_cell", 4), cell("gru_cell", 3), cell("rnn_relu_cell", 1),
    ]  # fmt: skip


class Samples:
    """Makes calls of an operator of the database; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._choose = random.Random(seed)

    def calls(self, op: Any, count: int) -> Iterator[Call]:
        """So many calls of an operator, or none if it has no samples of small tensors."""
        samples = _samples(op)
        for _ in range(count if samples else 0):
            sample = self._choose.choice(samples)
            leaves, shape = tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
            for _ in range(self._choose.choice((1, 1, 1, 2, 3))):
                leaves = self._changed(leaves)
            args, kwargs = tree_unflatten(leaves, shape)
            inplace = op.inplace_variant
            if inplace is not None and isinstance(args[0], torch.Tensor) and self._choose.random() < 0.2:
                yield Call(f"{op.full_name}_", inplace, args, kwargs)
            else:
                yield Call(op.full_name, op.op, args, kwargs)

    def _changed(self, leaves: list[Any]) -> list[Any]:
        choose, new = self._choose, list(leaves)
        tensors = [i for i, leaf in enumerate(new) if isinstance(leaf, torch.Tensor)]
        others = [i for i, leaf in enumerate(new) if isinstance(leaf, (int, float, str, complex, torch.dtype))]
        if others and (not tensors or choose.random() < 0.35):
            i = choose.choice(others)
            new[i] = self._other(new[i])
        elif tensors:
            chosen = tensors if choose.random() < 0.25 else [choose.choice(tensors)]
            dtype = choose.choice(DTYPES)
            for i in chosen:
                new[i] = new[i].detach().to(dtype) if choose.random() < 0.5 else self._reshaped(new[i])
        return new

    def _other(self, value: Any) -> Any:
        choose = self._choose
        match value:
            case bool():
                return not value
            case int():
                return choose.choice((*NUMBERS, value + 1, value - 1, -value, 10**6))
            case float() | complex():
                return choose.choice(SCALARS)
            case str():
                return choose.choice((*_WORDS, value.upper(), value + "x"))
        return choose.choice(DTYPES)

    def _reshaped(self, tensor: torch.Tensor) -> torch.Tensor:
        choose = self._choose
        if tensor.dim() == 0:
            return tensor.reshape(choose.choice(((), (1,), (1, 1))))
        dim = choose.randrange(tensor.dim())
        size = tensor.size(dim)
        match choose.randrange(8):
            case 0:
                return tensor.unsqueeze(dim)
            case 1:
                return tensor.select(dim, 0) if size else tensor
            case 2:
                return tensor.narrow(dim, 0, choose.randrange(size + 1))
            case 3:
                return torch.cat([tensor, tensor], dim)
            case 4:
                return tensor.new_zeros(())
            case 5:
                return tensor.narrow(dim, 0, min(1, size))
            case 6:
                return tensor.transpose(dim, choose.randrange(tensor.dim()))
        return tensor.narrow(dim, 0, 1).expand_as(tensor) if size else tensor


def _samples(op: Any) -> list[Any]:
    torch.manual_seed(0)
    wanted = (torch.float32, torch.int64, torch.bool, torch.complex64)
    dtype = next((one for one in wanted if op.supports_dtype(one, "cpu")), None)
    if dtype is None:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [sample for sample in islice(op.sample_inputs("cpu", dtype), _SAMPLES) if _is_small(sample)]


def _is_small(sample: Any) -> bool:
    leaves = tree_flatten((sample.input, sample.args, dict(sample.kwargs)))[0]
    return all(
        leaf.layout == torch.strided
        and leaf.numel() <= _MOST_ELEMENTS
        and leaf.dtype not in (torch.float64, torch.complex128)
        for leaf in leaves
        if isinstance(leaf, torch.Tensor)
    )
