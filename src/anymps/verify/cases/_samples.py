"""Cases of torch's own database: results, gradients and wrong inputs of each operator and dtype."""

from __future__ import annotations

import functools
import itertools
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from anymps.rules import fallback_operators
from anymps.verify.cases._answering import Answer, Case, answered, digest_of, in_turn, refusal
from anymps.verify.cases._database import database, seed_generators

ASKED_DTYPES: Final = (
    torch.float32, torch.float16, torch.int64, torch.bool, torch.bfloat16, torch.complex64, torch.int32, torch.uint8,
    torch.int16, torch.int8,
)  # fmt: skip
"""Those of torch's own test of mps."""
GRADIENT_DTYPES: Final = (torch.float32, torch.float16)
_LOST: Final = 12
"""Bits of float32's 23 that inputs lose: what is left is exact whatever a machine's last digits were."""
_FROM: Final = 12
_SAMPLES: Final = 3
_VALUES: Final = 16
_ERRORS: Final = 40
_AS_FOUND: Final = frozenset(
    (
        *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
        *("resize_", "resize_as_"),
    )
)
"""Entries of the database whose results are memory that nobody wrote to."""


def database_cases() -> list[Case]:
    """All cases, operators and dtypes in turn. Raises ModuleNotFoundError where the database cannot be loaded."""
    return in_turn([_cases_of(info) for info in database().values()])


def _cases_of(info: Any) -> list[Case]:
    """Those of one operator."""
    found = [_case("forward", info, dtype) for dtype in ASKED_DTYPES]
    if info.supports_autograd:
        found += [_case("gradient", info, dtype) for dtype in GRADIENT_DTYPES]
    if info.error_inputs_func is not None:
        found.append(Case(f"errors {info.full_name}", functools.partial(_errors, info)))
    return found


def fallback_cases() -> list[Case]:
    """Each operator in float32, where the CPU may step in; first those that are known to have no kernel."""
    known = {name.partition(".")[0] for name in fallback_operators()}
    entries = sorted(database().values(), key=lambda info: _operator(info).replace(".", "_") not in known)
    return [_case("fallback", info, torch.float32) for info in entries]


def _case(what: str, info: Any, dtype: torch.dtype) -> Case:
    ask = functools.partial(_asked, info, dtype, gradient=what == "gradient")
    return Case(f"{what} {info.full_name} {str(dtype).removeprefix('torch.')}", ask)


def _asked(info: Any, dtype: torch.dtype, *, gradient: bool) -> Answer:
    try:
        samples = _chosen(info, dtype)
    except Exception as error:  # the sample is made on the CPU, which may have no kernel for that
        return {**refusal(error), "does": "unasked"}
    if not samples:
        return {"does": "unasked", "text": "the database has no samples"}
    return {"samples": [_sample(info, sample, gradient) for sample in samples], "operator": _operator(info)}


def _operator(info: Any) -> str:
    return str(info.aten_name or info.name)


def _chosen(info: Any, dtype: torch.dtype) -> list[Any]:
    """Samples from the beginning, the middle and the end of the first few."""
    seed_generators(0)
    some = list(itertools.islice(info.sample_inputs("cpu", dtype), _FROM))
    return [some[at] for at in sorted({0, len(some) // 2, len(some) - 1})] if some else []


def portable(value: Any) -> Any:
    """A CPU tensor whose float32 parts have 11 bits of fraction; anything else as it is.

    Functions that make inputs round differently on two processors. A last digit more or less is gone after this.
    """
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_meta:
        return value
    if value.dtype == torch.complex64:
        return torch.view_as_complex(portable(torch.view_as_real(value.resolve_conj().resolve_neg())))
    if value.dtype != torch.float32 or not value.numel():
        return value
    plain = value.detach().clone(memory_format=torch.preserve_format)
    bits = plain.view(torch.int32)
    coarse = ((bits + (1 << (_LOST - 1))) & -(1 << _LOST)).view(torch.float32)
    keeps = torch.isfinite(plain) & torch.isfinite(coarse)
    rounded = torch.where(keeps, coarse, plain)
    if rounded.stride() == value.stride():
        return rounded
    # An expanded tensor has one place for several elements: it stays as it was made.
    return value if 0 in value.stride() else torch.empty_strided(value.shape, value.stride()).copy_(rounded)


def to_mps(value: Any, *, gradient: bool = False) -> Any:
    """A tensor on the device, and the CPU's name as the device's; `gradient` makes leaves of what can have one."""
    if isinstance(value, torch.Tensor):
        if value.is_meta:
            return value
        moved = value.detach().to("mps")
        return moved.requires_grad_(gradient and (moved.is_floating_point() or moved.is_complex()))
    if isinstance(value, torch.device) and value.type == "cpu":
        return torch.device("mps")
    return "mps" if isinstance(value, str) and value == "cpu" else value


def _values_of(sample: Any) -> tuple[Any, Any]:
    return tree_map(portable, ((sample.input, *sample.args), dict(sample.kwargs)))  # type: ignore[no-any-return]


def _on_mps(info: Any, values: tuple[Any, Any], *, gradient: bool) -> tuple[Any, Any]:
    args, kwargs = tree_map(functools.partial(to_mps, gradient=gradient), values)
    if info.name == "tensor_split" and len(args) > 1:  # takes its indices from the CPU only, on every device
        args = (args[0], values[0][1], *args[2:])
    return args, kwargs


def _sample(info: Any, sample: Any, gradient: bool) -> Answer:
    """What the operator gives for a sample; and what that depends on, to tell other inputs from another answer."""
    values = _values_of(sample)

    def call() -> Any:
        args, kwargs = _on_mps(info, values, gradient=gradient)
        results = info.op(*args, **kwargs)
        return _gradients((args, kwargs), results) if gradient else results

    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor) and not leaf.is_meta]
    inputs = digest_of(one for one in tensors if one.layout == torch.strided)
    seed_generators(0)
    return {**answered(call, _VALUES, values=not _draws(info.full_name)), "inputs": inputs}


def _gradients(given: Any, results: Any) -> Any:
    leaves, outputs = (
        [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor) and x.requires_grad] for tree in (given, results)
    )
    if not outputs or not leaves:
        return []
    return torch.autograd.grad(outputs, leaves, [_weights(x) for x in outputs], allow_unused=True)


def _weights(output: torch.Tensor) -> torch.Tensor:
    """Gradients of a result, the same everywhere, and exact in half precision."""
    numbers = (torch.arange(output.numel(), device="cpu") % 7 - 3) / 4
    return numbers.view(output.shape).to(output.dtype).to("mps")


def _errors(info: Any) -> Answer:
    """Each wrong input of the database."""
    seed_generators(0)
    found: list[Answer] = []
    wrongs = iter(info.error_inputs("mps:0"))
    while len(found) < _ERRORS:
        try:
            wrong = next(wrongs)
        except StopIteration:
            break
        except Exception as error:  # the wrong input itself cannot be made on mps
            found.append({**refusal(error), "does": "unasked"})
            break
        sample = wrong.sample_input
        call = functools.partial(info.op, sample.input, *sample.args, **sample.kwargs)
        found.append(answered(call, _VALUES, values=False))
    return {"samples": found, "operator": _operator(info)}


class Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notices whether a call draws random numbers, or gives out memory as it finds it."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen = self.seen or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


@functools.cache
def _draws(full_name: str) -> bool:
    """Whether an operator gives random numbers, by what its first samples do on the CPU, or memory as it finds it."""
    info = next(one for one in database().values() if one.full_name == full_name)
    if info.name in _AS_FOUND:
        return True
    try:
        samples = list(itertools.islice(info.sample_inputs("cpu", torch.float32), 4))
    except Exception:
        return False
    for sample in samples:
        with Draws() as draws:  # type: ignore[no-untyped-call]
            try:
                info.op(sample.input, *sample.args, **sample.kwargs)
            except Exception:
                continue
        if draws.seen:
            return True
    return False
