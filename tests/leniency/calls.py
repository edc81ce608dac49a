"""Random calls of the overloads in torch's schemas: tensors that nearly fit, arguments that are nearly right."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_map

from anymps.rules import operator_rules

DTYPES: Final = (
    *(torch.float32,) * 5, *(torch.int64,) * 2, torch.float16, torch.bfloat16, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64,
)  # fmt: skip
NUMBERS: Final = (-5, -2, -1, -1, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 7)
SCALARS: Final = (0, 1, 2, -1, 3, 300, 0.5, -0.5, 2.5, 1e30, float("nan"), float("inf"), True, False, 1 + 2j)
_SIZES: Final = (0, 1, 1, 2, 2, 3, 3, 3, 4, 5)
_RANKS: Final = (0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5)
_FLOATS: Final = (0.0, 0.0, 0.5, 0.5, 1.0, 1.0, 2.0, -1.0, 1e-5, 1.5, float("inf"), float("nan"))
_LAYOUTS: Final = ("whole", "whole", "whole", "whole", "transposed", "expanded", "behind", "gaps")
_FORMATS: Final = (torch.contiguous_format, torch.preserve_format, torch.channels_last)
_WORDS: Final = {
    "reduce": ("sum", "prod", "mean", "amax", "amin", "sum", "prod", "max"),
    "rounding_mode": ("trunc", "floor", None, "ceil"),
    "padding": ("same", "valid", "full"),
    "mode": ("constant", "reflect", "replicate", "circular", "reduced", "complete"),
    "pad_mode": ("constant", "reflect", "replicate", "edge"),
    "ord": ("fro", "nuc", "max"),
    "p": ("fro", "nuc", "max"),
    "indexing": ("ij", "xy", "yx"),
    "UPLO": ("U", "L", "X", "u"),
    "driver": ("gels", "gelsy", "gelsd", "gelss", "gesvd", "none"),
    "approximate": ("none", "tanh", "erf"),
    "interpolation": ("linear", "lower", "higher", "midpoint", "nearest", "cubic"),
    "side": ("left", "right", "middle"),
    "norm": ("forward", "backward", "ortho", "full"),
}
"""Words for an argument by its name; one of them at least no operator takes."""

# Beginnings of names: they change the process, need a build that is not there, or are not about tensors of numbers.
_LEFT_OUT: Final = """
    _assert _choose_qparams _cuda _cudnn _debug _empty_affine _fake_quantize _functional _fw_primal _has_compatible
    _jagged _lazy _local_scalar _make_dual _mkldnn _mps_ _nested _nnpack _pin _print _propagate_xla _reshape_alias
    _resize_output _share _sobol _test _thnn_fused _unpack_dual _unsafe_set _use_cudnn _validate_sparse _version
    as_strided choose_qparams cudnn fake_quantize fbgemm from_file is_pinned is_vulkan lift miopen mkldnn pin_memory
    q_ quantize record_stream requires_grad_ resize retain_grad set_ set_data sym_
"""
# Whole names: operators whose CPU kernels end the process for some arguments. Most are called inside torch alone.
_CRASHES: Final = """
    _cholesky_solve_helper _chunk_cat _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo
    _dyn_quant_matmul_4bit _dyn_quant_pack_4bit_weight _fft_c2c _fft_c2r _fft_r2c _foreach_copy _fused_adagrad
    _fused_adam _fused_adamw _fused_sgd _log_softmax _masked_softmax _native_batch_norm_legit _remove_batch_dim
    _saturate_weight_to_fp16 _scaled_dot_product_attention_math _scaled_dot_product_flash_attention_for_cpu_backward
    _stack _transform_bias_rescale_qkv _weight_norm_interface batch_norm_backward fractional_max_pool2d_backward
    fused_moving_avg_obs_fake_quant lstm_mps_backward native_batch_norm_backward reflection_pad2d_backward
    replication_pad3d smooth_l1_loss_backward _softmax_backward_data _log_softmax_backward_data
"""


@dataclass(frozen=True)
class Described:
    """A tensor that can be made again, on any device, with the same values and strides."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str = "whole"
    seed: int = 0

    def make(self, device: str) -> torch.Tensor:
        """The tensor."""
        shape, layout = list(self.shape), self.layout if self.shape else "whole"
        if layout == "transposed" and len(shape) > 1:
            shape[-2:] = shape[-1], shape[-2]
        elif layout == "expanded":
            shape[0] = 1
        elif layout == "behind":
            shape[0] += 1
        elif layout == "gaps":
            shape[-1] *= 2
        made = _values(shape, self.dtype, self.seed).to(device)
        if layout == "transposed" and len(shape) > 1:
            return made.transpose(-1, -2)
        if layout == "expanded":
            return made.expand(self.shape)
        if layout == "behind":
            return made[1:]
        return made[..., ::2] if layout == "gaps" else made

    def __repr__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.")
        return f"{kind}{list(self.shape)}" + (f":{self.layout}" if self.layout != "whole" else "")


class Here:
    """Stands for the device of a call."""

    def __repr__(self) -> str:
        return "DEVICE"


@dataclass(frozen=True)
class Call:
    """A function and its arguments: CPU tensors or `Described` ones, and `Here` or "cpu" for the device."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def on(self, device: str) -> tuple[list[Any], dict[str, Any]]:
        """The arguments on a device, new ones each time."""

        def settle(value: Any) -> Any:
            if isinstance(value, Described):
                return value.make(device)
            if isinstance(value, torch.Tensor):
                whole = torch.empty(0, dtype=value.dtype).set_(value.detach().untyped_storage().clone())
                return torch.as_strided(whole.to(device), value.size(), value.stride(), value.storage_offset())
            is_device = isinstance(value, Here) or (isinstance(value, (torch.device, str)) and str(value) == "cpu")
            return torch.device(device) if is_device else value

        return tree_map(settle, (list(self.args), self.kwargs))  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        args, kwargs = tree_map(_short, (list(self.args), self.kwargs))
        given = [repr(value) for value in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
        return f"{self.name}({', '.join(given)})"


def _short(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return Described(tuple(value.shape), value.dtype, "whole" if value.is_contiguous() else "strided")
    return value


def _values(shape: list[int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_floating_point or dtype.is_complex:
        drawn = torch.complex64 if dtype.is_complex else torch.float32
        return torch.randn(shape, generator=generator, dtype=drawn).to(dtype)
    low, high = ((0, 2), (0, 4), (-1, 4), (0, 10))[seed % 4]  # most are good indices of small tensors
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def overloads() -> list[OpOverload]:
    """Every overload that is called, by name. Of operators with an underscore those that mps has a kernel for."""
    left_out, crashes = tuple(_LEFT_OUT.split()), set(_CRASHES.split())
    found: dict[str, OpOverload] = {}
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        if name == schema.name or name.startswith(left_out) or name in crashes:
            continue
        rule = operator_rules().get(f"{name}.{schema.overload_name}".removesuffix("."))
        if name.startswith("_") and not name.startswith("_foreach") and (rule is None or not rule.mps):
            continue
        one = getattr(getattr(torch.ops.aten, name, None), schema.overload_name or "default", None)
        if isinstance(one, OpOverload) and any("Tensor" in str(value.type) for value in schema.returns):
            found[str(one)] = one
    return [found[name] for name in sorted(found)]


class RandomCalls:
    """Makes calls of an overload; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._choose = random.Random(seed)
        self._shape: tuple[int, ...] = ()
        self._dtype = torch.float32
        self._right = 0.8

    def calls(self, overload: OpOverload, count: int) -> Iterator[Call]:
        """So many calls of an overload; the tensors of each are near to one shape and one dtype."""
        choose = self._choose
        for _ in range(count):
            self._shape = tuple(choose.choice(_SIZES) for _ in range(choose.choice(_RANKS)))
            self._dtype = choose.choice(DTYPES)
            self._right = choose.choice((0.5, 0.8, 0.95, 1.0))
            args: list[Any] = []
            kwargs: dict[str, Any] = {}
            for argument in overload._schema.arguments:
                if argument.has_default_value() and choose.random() < 0.5:
                    if not argument.kwarg_only:
                        args.append(argument.default_value)
                    continue
                value = self._argument(argument.name, str(argument.real_type), argument.N)
                if argument.kwarg_only:
                    kwargs[argument.name] = value
                else:
                    args.append(value)
            yield Call(str(overload), overload, tuple(args), kwargs)

    def _argument(self, name: str, kind: str, length: int | None = None) -> Any:
        choose = self._choose
        if kind.startswith("Optional["):
            return None if choose.random() < 0.4 else self._argument(name, kind[9:-1], length)
        if kind.startswith("List["):
            if "Tensor" in kind:
                return [self._argument(name, kind[5:-1]) for _ in range(choose.choice((0, 1, 2, 2, 3, 3, 4)))]
            count = length if length and choose.random() < 0.9 else choose.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
            if name in ("size", "output_size", "shape") and choose.random() < 0.5:
                return list(self._shape)
            return [self._argument(name, kind[5:-1]) for _ in range(count)]
        makers: dict[str, Callable[[], Any]] = {
            "Tensor": lambda: self._tensor(name),
            "int": lambda: self._number(name),
            "SymInt": lambda: self._number(name),
            "float": lambda: choose.choice(_FLOATS),
            "bool": lambda: choose.random() < 0.5,
            "number": lambda: choose.choice(SCALARS),
            "Scalar": lambda: choose.choice(SCALARS),
            "complex": lambda: 1 + 2j,
            "str": lambda: choose.choice(_WORDS.get(name, ("sum", "none", "mean"))),
            "ScalarType": lambda: choose.choice(DTYPES),
            "Layout": lambda: torch.strided,
            "Device": Here,
            "MemoryFormat": lambda: choose.choice(_FORMATS),
        }
        return makers[kind]() if kind in makers else None

    def _number(self, name: str) -> int:
        if name in ("dim", "dim0", "dim1", "dim2", "axis", "dims") and self._choose.random() < self._right:
            rank = max(len(self._shape), 1)
            return self._choose.randrange(-rank, rank)
        return self._choose.choice(NUMBERS)

    def _tensor(self, name: str) -> Described:
        choose = self._choose
        shape = self._shape if choose.random() < self._right else self._other_shape()
        dtype = self._dtype if choose.random() < self._right else choose.choice(DTYPES)
        if name in ("index", "indices", "target", "self_indices") and choose.random() < 0.8:
            dtype = torch.int64
        if name in ("mask", "condition", "attn_mask") and choose.random() < 0.8:
            dtype = torch.bool
        return Described(shape, dtype, choose.choice(_LAYOUTS), choose.randrange(1000))

    def _other_shape(self) -> tuple[int, ...]:
        """A shape that may broadcast with the call's, or has one dimension more, less or of another size."""
        choose, shape = self._choose, self._shape
        place = choose.randrange(max(len(shape), 1))
        others = (
            shape[1:],
            (choose.choice(_SIZES), *shape),
            (*shape[:place], choose.choice(_SIZES), *shape[place + 1 :]),
            tuple(size if choose.random() < 0.5 else 1 for size in shape),
            shape[-1:],
            tuple(choose.choice(_SIZES) for _ in range(choose.randrange(5))),
            (),
        )
        return choose.choice(others)[:5]
