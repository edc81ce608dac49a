"""Torch's errors where only a CPU tensor is allowed and one on mps is given, outside of MPS kernels."""

from __future__ import annotations

from typing import Final

from anymps.rules._readings import Reading
from anymps.rules.texts._calls import BackendText

READING: Final = Reading("texts.cpu_only", "torch's sources, named at each text", (2, 7), (2, 15))


def numpy_of(device: str) -> BackendText:
    """`x.numpy()`, `np.asarray(x)` (torch 2.7 to 2.15, torch/csrc/utils/tensor_numpy.cpp)."""
    return BackendText(
        "TypeError",
        f"can't convert {device} device type tensor to numpy. "
        "Use Tensor.cpu() to copy the tensor to host memory first.",
    )


def pinned(tensor: str = "") -> BackendText:
    """`x.pin_memory()` of a type such as `MPSFloatType`; without one `torch.ones(3, device="mps", pin_memory=True)`.

    Torch 2.7 to 2.15, aten/src/ATen/native/Memory.cpp and aten/src/ATen/EmptyTensor.cpp.
    """
    if tensor:
        return BackendText("RuntimeError", f"cannot pin '{tensor}' only dense CPU tensors can be pinned")
    return BackendText("RuntimeError", "Only dense CPU tensors can be pinned")


def called_per_element(method: str) -> BackendText:
    """`x.apply_(f)`, `map_`, `map2_`: a Python function for every element.

    Torch 2.7 to 2.15, torch/csrc/utils/tensor_apply.cpp.
    """
    return BackendText("TypeError", f"{method} is only implemented on CPU tensors")
