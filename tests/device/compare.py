"""The same call on the CPU and on mps: values, dtypes, shapes, strides, gradients and errors must agree."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map

import anymps
from anymps._threads import calling_thread_alone
from anymps.rules import operator_rules

Function = Callable[..., Any]


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    """How far results may be apart: torch's own defaults here; more on hardware, which adds in another order."""
    if anymps.is_virtual() or not (dtype.is_floating_point or dtype.is_complex):
        return {}
    wide = dtype in (torch.float16, torch.bfloat16)
    return {"rtol": 2e-2, "atol": 2e-2} if wide else {"rtol": 1e-3, "atol": 1e-4}


def values(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """A CPU tensor of reproducible values: around zero for floats, 0 to 9 for integers."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(0, 10, shape, generator=generator).to(dtype)
    drawn = torch.complex64 if dtype.is_complex else torch.float32
    return torch.randn(shape, generator=generator, dtype=drawn).to(dtype)


def needs_kernel(operator: str) -> None:
    """Skips the test where MPS has no kernel for the operator (`linalg_qr.out`) in this torch release."""
    if not operator_rules()[operator].mps:
        pytest.skip(f"torch {torch.__version__} has no mps kernel for {operator}")


def to_mps(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a CPU tensor on mps with the same strides and storage offset, a leaf as it was."""
    if tensor.layout != torch.strided:
        return tensor.detach().to("mps").requires_grad_(tensor.requires_grad)
    plain = tensor.detach().resolve_conj().resolve_neg() if tensor.is_conj() or tensor.is_neg() else tensor.detach()
    whole = torch.empty(0, dtype=plain.dtype).set_(plain.untyped_storage())
    moved = torch.as_strided(whole.to("mps"), plain.size(), plain.stride(), plain.storage_offset())
    return moved.requires_grad_(tensor.requires_grad)


def on_cpu(tree: Any) -> Any:
    """A copy of arguments in which tensors and modules stay where they are, on the CPU."""
    return tree_map(_copy, tree)


def on_mps(tree: Any) -> Any:
    """A copy of arguments with tensors and modules on mps, and devices replaced by mps."""
    return tree_map(_move, tree)


def _copy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return copy.deepcopy(value.detach()).requires_grad_(value.requires_grad)
    return copy.deepcopy(value) if isinstance(value, nn.Module) else value


def _move(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return to_mps(value)
    if isinstance(value, nn.Module):
        return copy.deepcopy(value).to("mps")
    return torch.device("mps") if isinstance(value, torch.device) else value


def assert_same(actual: Any, expected: Any, *, strides: bool = True) -> None:
    """`actual`, from mps, is what the CPU gave: the same structure, and each tensor on mps with the same content."""
    found, found_shape = tree_flatten(actual)
    wanted, wanted_shape = tree_flatten(expected)
    assert wanted_shape == found_shape
    for one, other in zip(found, wanted, strict=True):
        if isinstance(other, torch.Tensor):
            _assert_same_tensor(one, other, strides)
        else:
            assert other == one


def _assert_same_tensor(actual: torch.Tensor, expected: torch.Tensor, strides: bool) -> None:
    assert torch.device("mps:0") == actual.device
    assert expected.dtype == actual.dtype
    assert expected.shape == actual.shape
    assert expected.layout == actual.layout
    assert expected.requires_grad == actual.requires_grad
    if strides and expected.layout == torch.strided and anymps.is_virtual():
        assert expected.stride() == actual.stride()
    torch.testing.assert_close(actual.detach().cpu(), expected.detach(), equal_nan=True, **tolerance(expected.dtype))


def same(function: Function, *args: Any, strides: bool = True, **kwargs: Any) -> Any:
    """Calls `function` with the arguments on the CPU and on mps; compares results and what became of the arguments.

    An exception on the CPU must be one of the same type and text on mps. Returns the result on mps.
    """
    cpu_args, cpu_kwargs = on_cpu((args, kwargs))
    mps_args, mps_kwargs = on_mps((args, kwargs))
    try:
        expected = function(*cpu_args, **cpu_kwargs)
    except Exception as error:  # the CPU's refusal, whatever it is, is the expected answer
        _assert_raises_same(error, function, mps_args, mps_kwargs)
        return None
    actual = function(*mps_args, **mps_kwargs)
    assert_same(actual, expected, strides=strides)
    for one, other in zip(tree_flatten(mps_args)[0], tree_flatten(cpu_args)[0], strict=True):
        if isinstance(other, torch.Tensor):
            _assert_same_tensor(one, other, strides)
    return actual


def _assert_raises_same(expected: Exception, function: Function, args: Any, kwargs: Any) -> None:
    assert str(expected) == text_of(type(expected), function, *args, **kwargs)


def same_gradients(function: Function, *args: Any, strides: bool = False, **kwargs: Any) -> Any:
    """As `same`, and the gradients of every floating argument (tensors, modules' parameters) agree too.

    Floating tensors among the arguments become leaves that require gradients.
    """
    ready = tree_map(_leaf, (args, kwargs))
    cpu_args, cpu_kwargs = on_cpu(ready)
    mps_args, mps_kwargs = on_mps(ready)
    with calling_thread_alone():  # as the device computes small calls, so that sums are added in the same order
        expected = function(*cpu_args, **cpu_kwargs)
        backward(expected)
    actual = function(*mps_args, **mps_kwargs)
    assert_same(actual, expected, strides=strides)
    backward(actual)
    wanted, found = _leaves((cpu_args, cpu_kwargs)), _leaves((mps_args, mps_kwargs))
    assert wanted
    assert any(leaf.grad is not None for leaf in wanted)
    for other, one in zip(wanted, found, strict=True):
        if other.grad is None:
            assert one.grad is None
        else:
            _assert_same_tensor(one.grad, other.grad, strides)
    return actual


def backward(result: Any) -> None:
    """Backward through every differentiable tensor of a result, with weights that tell its elements apart."""
    tensors = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    weights = [torch.linspace(-1, 2, max(t.numel(), 1))[: t.numel()].reshape(t.shape).to(t.dtype) for t in tensors]
    torch.autograd.backward(tensors, [w.to(t.device) for w, t in zip(weights, tensors, strict=True)])


def _leaf(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and (value.dtype.is_floating_point or value.dtype.is_complex):
        return value.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    return value


def _leaves(tree: Any) -> list[torch.Tensor]:
    leaves: list[torch.Tensor] = []
    for value in tree_flatten(tree)[0]:
        if isinstance(value, nn.Module):
            leaves.extend(value.parameters())
        elif isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad:
            leaves.append(value)
    return leaves


def same_module(module: nn.Module, *inputs: Any, **kwargs: Any) -> Any:
    """Forward, gradients of inputs and parameters, and buffers of a module agree on the CPU and on mps."""
    twins: list[nn.Module] = []

    def call(twin: nn.Module, *args: Any, **more: Any) -> Any:
        twins.append(twin)
        return twin(*args, **more)

    result = same_gradients(call, module, *inputs, **kwargs)
    for (name, other), (found, one) in zip(twins[0].named_buffers(), twins[1].named_buffers(), strict=True):
        assert name == found
        _assert_same_tensor(one, other, strides=False)
    return result


def text_of(expected: type[BaseException], function: Function, *args: Any, **kwargs: Any) -> str:
    """The text of the exception that the call raises, which is of exactly that type."""
    with pytest.raises(expected) as raised:
        function(*args, **kwargs)
    assert expected is raised.type
    return str(raised.value)
