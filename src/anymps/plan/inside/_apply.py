"""Applies a scenario to the script that is about to run in this process, without editing it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data.dataloader import _BaseDataLoaderIter

from anymps.plan._scenario import OPTIMIZERS, Scenario
from anymps.plan.inside._quantise import Quantised


class Applied:
    """What the script's batches looked like, once it has run."""

    def __init__(self) -> None:
        self.batch: int | None = None
        """Samples in the first batch of the first data loader, before any change; None if there was none."""
        self.sequence: int | None = None
        """Tokens in a sample of it: the second size that most of its tensors of integers share."""
        self.blocks = 0
        """Blocks that recompute their activations."""
        self.last_batch: int | None = None
        """Samples in the last batch that a data loader gave."""
        self.optimizers = 0
        """Optimizers made of the kinds that a scenario knows."""
        self.quantised: Quantised | None = None

    def without_effect(self, scenario: Scenario, placed: bool) -> str:
        """Why the scenario changed nothing, or nothing; `placed`: the script's arguments have its sizes."""
        if not placed and (scenario.batch or scenario.accumulate or scenario.sequence) and self.batch is None:
            return "no data loader gives batches; put {batch} where the script's arguments have the size"
        if scenario.accumulate and self.batch is None:
            return "no data loader gives batches that could be split"
        if scenario.accumulate and (whole := scenario.batch or self.batch or 0) < scenario.accumulate:
            return f"a batch of {whole} cannot be split into {scenario.accumulate} parts"
        if not placed and scenario.sequence and self.sequence is None:
            return "no batch of tokens was seen; put {sequence} where the script's arguments have the length"
        if scenario.checkpoint and not self.blocks:
            return "the model has no repeated blocks"
        if self.quantised is not None and not self.quantised.layers:
            return "no linear layers, but the last, move to mps by .to(), where bitsandbytes would quantise them"
        if (scenario.optimizer or scenario.fused is not None) and not self.optimizers:
            return "the script makes no Adam, AdamW or SGD of torch.optim"
        return ""


def apply(scenario: Scenario) -> Applied:
    """Change torch in this process so that the script runs as the scenario says. Nothing is undone."""
    applied = Applied()
    _watch_loader(scenario, applied)
    if scenario.weights is not None:
        applied.quantised = Quantised(scenario.weights)
    if scenario.precision is not None or scenario.checkpoint or scenario.weights:
        _watch_models(scenario, applied)
    if scenario.fused is not None:
        _choose_implementation(scenario.fused, applied)
    if scenario.optimizer is not None:
        _replace_optimizers(scenario.optimizer, applied)
    # A value that a plan assumes is no reason to stop.
    torch.distributions.Distribution.set_default_validate_args(False)
    return applied


# --- batches


def _watch_loader(scenario: Scenario, applied: Applied) -> None:
    original = _BaseDataLoaderIter.__next__

    def resized(iterator: _BaseDataLoaderIter) -> Any:
        batch = original(iterator)
        tensors = list(_tensors(batch))
        samples = _common(tensor.shape[0] for tensor in tensors if tensor.dim() > 0)
        tokens = _common(t.shape[1] for t in tensors if t.dim() == 2 and not t.is_floating_point())
        applied.last_batch = samples
        if applied.batch is None:
            applied.batch, applied.sequence = samples, tokens
        wanted = scenario.batch if scenario.batch is not None else samples
        if scenario.accumulate and wanted is not None:
            wanted = max(1, wanted // scenario.accumulate)
        if samples and wanted and wanted != samples:
            batch = _map(batch, lambda tensor: _resize(tensor, 0, samples, wanted))
        if tokens and scenario.sequence and scenario.sequence != tokens:
            batch = _map(batch, lambda tensor: _resize(tensor, 1, tokens, scenario.sequence or tokens))
        return batch

    _BaseDataLoaderIter.__next__ = resized  # type: ignore[method-assign, assignment]


def _common(sizes: Iterable[int]) -> int | None:
    found = Counter(sizes).most_common(1)
    return found[0][0] if found else None


def _resize(tensor: Tensor, dimension: int, size: int, wanted: int) -> Tensor:
    """The tensor with its first `wanted` slices, repeated where there are too few."""
    if tensor.dim() <= dimension or tensor.shape[dimension] != size:
        return tensor
    return tensor.index_select(dimension, torch.arange(wanted) % size)


def _tensors(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict) or hasattr(value, "items"):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _map(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same structure with every tensor changed; a dictionary of a class of its own is changed in place."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict) or hasattr(value, "items"):
        for key in list(value.keys()):
            value[key] = _map(value[key], change)
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map(item, change) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_map(item, change) for item in value)
    return value


# --- models


def _watch_models(scenario: Scenario, applied: Applied) -> None:
    original = nn.Module.__call__
    dtype = getattr(torch, scenario.precision) if scenario.precision is not None else None
    inside = threading.local()
    seen: set[int] = set()

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if getattr(inside, "yes", False):
            return original(module, *args, **kwargs)
        if scenario.checkpoint and id(module) not in seen:
            seen.add(id(module))
            applied.blocks += checkpoint_blocks(module)
        if applied.quantised is not None:
            applied.quantised.settle()
        inside.yes = True
        try:
            if dtype is None:
                return original(module, *args, **kwargs)
            with torch.autocast("mps", dtype=dtype):
                return original(module, *args, **kwargs)
        finally:
            inside.yes = False

    nn.Module.__call__ = call  # type: ignore[method-assign]


def checkpoint_blocks(model: nn.Module) -> int:
    """Make the repeated blocks of a model recompute their activations in the backward; returns how many there are.

    A block is one of several children of one class, with parameters, of a `ModuleList` or `Sequential`. A model that
    can do it itself (`gradient_checkpointing_enable` of transformers and diffusers) is asked to.
    """
    for enable in ("gradient_checkpointing_enable", "enable_gradient_checkpointing"):
        if hasattr(model, enable):
            getattr(model, enable)()
            return 1
    count = 0
    for parent in list(model.modules()):
        if not isinstance(parent, (nn.ModuleList, nn.Sequential)):
            continue
        kinds = Counter(type(child) for child in parent)
        for child in parent:
            if (
                kinds[type(child)] > 1
                and any(True for _ in child.parameters())
                and next(child.children(), None) is not None
            ):
                _checkpoint(child)
                count += 1
    return count


def _checkpoint(block: nn.Module) -> None:
    forward = block.forward

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)
        return forward(*args, **kwargs)

    block.forward = recomputed


# --- optimizers


def _choose_implementation(fused: bool, applied: Applied) -> None:
    for name in OPTIMIZERS.values():
        kind = getattr(torch.optim, name)
        original = kind.__init__

        def chosen(self: Any, *args: Any, _original: Any = original, **kwargs: Any) -> None:
            applied.optimizers += 1
            kwargs["fused"] = fused
            kwargs["foreach"] = None if fused else False
            _original(self, *args, **kwargs)

        kind.__init__ = chosen


def _replace_optimizers(wanted: str, applied: Applied) -> None:
    base: Any = getattr(torch.optim, OPTIMIZERS[wanted])

    class Replacement(base):  # type: ignore[misc]
        """The optimizer of the scenario, which takes what it knows of the arguments of another one."""

        def __init__(self, params: Any, lr: Any = 1e-3, *_: Any, **kwargs: Any) -> None:
            common = {name: kwargs[name] for name in ("weight_decay", "foreach", "maximize", "fused") if name in kwargs}
            super().__init__(params, lr=lr, **common)

    original = base.__init__

    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        applied.optimizers += 1
        original(self, *args, **kwargs)

    base.__init__ = counted
    for name in OPTIMIZERS.values():
        if name != base.__name__:
            setattr(torch.optim, name, Replacement)
