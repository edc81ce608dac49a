"""What if linear layers kept their weights in 4 or 8 bits, as bitsandbytes does: their bytes, and what a step makes.

Facts from bitsandbytes 0.50.2: what it stores (functional.py), what a call makes (autograd/_functions.py and
backends/default/ops.py); from transformers 5: which layers stay (quantizers/base.py). QLoRA: arXiv 2305.14314.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anymps.plan._scenario import RANK

_BLOCK, _OUTER = 64, 256  # weights with one scale, and such scales with one of their own
_CODES = 4 * (16 + 256)  # the values of NF4 and those of the scales, in float32, kept with each layer
_OUTLIER = 6.0  # LLM.int8() computes columns of the input with such values apart


def stored_bytes(rows: int, columns: int, kind: str) -> int:
    """Bytes of one layer's weight: nf4 with scales that are quantised too, else int8 with a float32 for each row."""
    size = rows * columns
    if kind == "int8":
        return size + 4 * rows
    blocks = -(-size // _BLOCK)
    return -(-size // 2) + blocks + 4 * -(-blocks // _OUTER) + 4 + _CODES


class Quantised:
    """Quantises the models that move to mps, and gives them adapters if nothing else of them could be trained."""

    def __init__(self, kind: str) -> None:
        self.layers = 0
        """Layers whose weights are quantised."""
        self.adapters = 0
        """Those of them that got adapters."""
        self._kind = kind
        self._new: list[Any] = []
        self._models: list[nn.Module] = []
        self._optimizers = WeakSet[torch.optim.Optimizer]()
        self._inside = False
        module: Any = nn.Module
        optimizer: Any = torch.optim.Optimizer
        move, make = module._apply, optimizer.__init__

        def moved(model: nn.Module, change: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> Any:
            if not self._inside and change(torch.empty(0)).device.type == "mps":
                self._quantise(model, change)
            outer, self._inside = self._inside, True
            try:
                return move(model, change, *args, **kwargs)
            finally:
                self._inside = outer

        def made(new: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            make(new, *args, **kwargs)
            self._optimizers.add(new)

        module._apply = moved
        optimizer.__init__ = made

    def _quantise(self, model: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
        for layer in _layers(model):
            shape, one = layer.weight.shape, change(layer.weight.data.new_zeros(1, 1))
            stored = one.new_zeros(stored_bytes(*_sizes(layer), self._kind), dtype=torch.uint8)
            layer.register_buffer("stored", stored, persistent=False)
            layer.weight.data = one.expand(shape)  # of the weight's shape, without its memory
            layer.__class__ = type("Quantised", (_Linear, type(layer)), {"kind": self._kind})
            self._new.append(layer)
            self.layers += 1
        self._models.append(model)

    def settle(self) -> None:
        """Before a forward: what the optimizers would train of the quantised weights is known by now.

        Some of them stay as they were. All of them get adapters, and every other weight is frozen, as PEFT does it.
        """
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        known = {id(one) for group in groups for one in group["params"]}
        if not known or not self._new:
            return
        trained = [one for one in self._new if one.weight.requires_grad and id(one.weight) in known]
        if len(trained) < len(self._new):
            for layer in trained:
                layer.weight.data = layer.weight.data.contiguous()  # with its memory
                del layer.stored
                layer.__class__ = type(layer).__mro__[2]
                self.layers -= 1
        else:
            for model in self._models:
                model.requires_grad_(False)
            self._adapt(trained, groups)
        self._new.clear()

    def _adapt(self, layers: list[Any], groups: list[dict[str, Any]]) -> None:
        """LoRA in float32, PEFT's default, beside each layer; its optimizer trains it."""
        adapters = {}
        for layer in layers:
            rows, columns = _sizes(layer)
            for name, shape in (("lora_A", (RANK, columns)), ("lora_B", (rows, RANK))):
                layer.register_parameter(name, nn.Parameter(torch.zeros(shape, device=layer.weight.device)))
            adapters[id(layer.weight)] = [layer.lora_A, layer.lora_B]
        for group in groups:
            group["params"] += [new for one in group["params"] for new in adapters.get(id(one), ())]
        self.adapters += len(layers)


def _layers(model: nn.Module) -> list[Any]:
    """The linear layers on the CPU that are quantised: those that are frozen, else all but the model's output.

    Embeddings stay, with what is tied to them, and as in transformers the last module and the output embeddings do.
    """
    name = [name for name, _ in model.named_parameters()][-1:]
    stays = [model.get_submodule(one.rpartition(".")[0]) for one in name]
    stays += [module for module in model.modules() if isinstance(module, nn.Embedding)]
    head = getattr(model, "get_output_embeddings", lambda: None)()
    kept = {id(one) for module in (*stays, head) if module is not None for one in module.parameters()}
    modules: list[Any] = list(model.modules())
    found = [
        module
        for module in modules
        if (type(module) is nn.Linear or _is_transposed(module))
        and id(module.weight) not in kept
        and module.weight.device.type == "cpu"
    ]
    return [module for module in found if not module.weight.requires_grad] or found


def _is_transposed(module: nn.Module) -> bool:
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")  # transformers' linear layer of GPT-2


def _sizes(layer: Any) -> tuple[int, int]:
    rows, columns = layer.weight.shape
    return (rows, columns) if isinstance(layer, nn.Linear) else (columns, rows)


class _Linear(nn.Module):
    """A layer whose weight is in `stored`, beside what its own class has."""

    kind: str
    stored: Tensor
    weight: Tensor
    bias: Tensor | None
    lora_A: Tensor
    lora_B: Tensor

    def forward(self, x: Tensor) -> Tensor:
        function = _NF4 if self.kind == "nf4" else _Int8
        result: Tensor = function.apply(x, self.bias, self).to(x.dtype)  # type: ignore[no-untyped-call]
        if "lora_A" not in self._parameters:
            return result
        change = F.linear(F.linear(x.to(self.lora_A.dtype), self.lora_A), self.lora_B) * 2.0
        return result + change.to(x.dtype)

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        """The weight as one kernel makes it, which reads what is stored."""
        rows, columns = _sizes(self)
        size = rows * columns
        if self.kind == "nf4":
            return self.stored[: -(-size // 2)].expand(2, -1).to(dtype).view(-1)[:size].view(rows, columns)
        return self.stored[:size].view(rows, columns).to(dtype)

    def _apply(self, change: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        shape = self.weight.shape
        self.weight.data = self.weight.data[:1, :1]
        super()._apply(change, recurse)  # type: ignore[no-untyped-call]
        self.weight.data = self.weight.data.expand(shape)
        return self


class _NF4(torch.autograd.Function):
    """The weight is made in the dtype of the input, once in the forward and once in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, layer: _Linear) -> Tensor:
        ctx.layer = layer
        return F.linear(x, layer.dequantised(x.dtype), bias if bias is None else bias.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        bias = grad.reshape(-1, grad.shape[-1]).sum(0) if ctx.needs_input_grad[1] else None
        return grad @ ctx.layer.dequantised(grad.dtype) if ctx.needs_input_grad[0] else None, bias, None


class _Int8(_NF4):
    """The input is quantised by row, after a look for outliers; the product is of float32, and the input is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, layer: _Linear) -> Tensor:
        ctx.layer = layer
        ctx.save_for_backward(x)
        rows = x.reshape(-1, x.shape[-1]).half()
        bool((rows.abs() >= _OUTLIER).any())
        scales = rows.abs().amax(1).float()
        rows = (rows * (127 / scales[:, None])).round().to(torch.int8)
        whole = (rows.float() @ layer.dequantised(torch.float32).t()).to(torch.int32)
        result = (whole * scales[:, None]).to(x.dtype)
        return (result if bias is None else result + bias.to(x.dtype)).view(*x.shape[:-1], -1)
