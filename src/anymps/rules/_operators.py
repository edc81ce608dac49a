"""What the MPS backend of the installed torch does with each operator overload, and the table for the native core.

Sources: `native_functions.yaml` of the installed wheel; what MPSFallback.mm registers beside it (the always-fallback
operators and `_slow_conv2d_forward`); what torch registers from Python (`VersionRules.python_kernels`); the tables of
`_families` and `_waits`. Kernels from Python aside, these equal the initialisers of TORCH_LIBRARY_IMPL in the macOS
wheels' `libtorch_cpu.dylib` exactly, for torch 2.11 to 2.15.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from anymps._errors import UnsupportedTorchError
from anymps._vocabulary import Fate, Wait
from anymps.rules._encoding import NO_TRAITS, Family, Trait, When
from anymps.rules._families import family
from anymps.rules._readings import Reading
from anymps.rules._versions import TorchVersion, VersionRules, check_supported, version_rules
from anymps.rules._waits import SyncPoint, wait_of
from anymps.rules._wheel import Overload, installed_torch, native_functions

READING: Final = Reading(
    "operators", "TORCH_LIBRARY_IMPL initialisers of libtorch_cpu.dylib in the macOS arm64 wheels", (2, 11), (2, 15)
)

_MPS_KEYS: Final = frozenset({"MPS", "SparseMPS", "SparseCsrMPS"})
_COMPOSITE: Final = (
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)
# MPSFallback.mm: registered only to name the two devices of a mixed convolution.
_ERROR_ONLY: Final = ("_slow_conv2d_forward",)

# Index tensors may lie on the CPU: aten/src/ATen/native/TensorAdvancedIndexing.cpp moves them to the indexed tensor's
# device ("indices should be either on ... or on the same device as the indexed tensor").
_CPU_INDEX: Final = frozenset({"index.Tensor", "index.Tensor_out", "_index_put_impl_"})

# A 0-dim CPU tensor is read on the host or moved, outside TensorIterator: fill_ (Fill.cpp), masked_fill_, index_fill_
# (value), _index_put_impl_ (values), where (TensorCompare.cpp), fused optimizers (lr). Below the blank line: binary
# iterators, which allow one as the others do, of operators that `native_functions.yaml` does not tag as point-wise.
_SCALAR_CPU: Final = frozenset(
    {
        "_fused_adam_.tensor_lr",
        "_fused_adamw_.tensor_lr",
        "_fused_sgd_.tensor_lr",
        "_index_put_impl_",
        "fill_.Tensor",
        "index_fill_.int_Tensor",
        "masked_fill_.Tensor",
        "where.self",
        "where.self_out",
        #
        "__irshift__.Tensor",
        "copysign_.Tensor",
        "eq_.Tensor",
        "floor_divide",
        "floor_divide.out",
        "floor_divide_.Tensor",
        "gcd_",
        "ge_.Tensor",
        "gt_.Tensor",
        "lcm_",
        "le_.Tensor",
        "lt_.Tensor",
        "mse_loss",
        "mse_loss.out",
        "ne_.Tensor",
        "rsub.Tensor",
        "smooth_l1_loss",
        "smooth_l1_loss.out",
    }
)
# TensorIterator operators whose iterator does not allow CPU scalars (TensorCompare.cpp, clamp with tensor bounds).
_NO_SCALAR_CPU: Final = frozenset({"clamp.Tensor", "clamp.Tensor_out", "clamp_.Tensor"})

CoreRow = tuple[str, int, int, int, int, str]
"""(`aten::add.Tensor`, Fate, Family, Trait, Wait, When): one overload for the native core."""


@dataclass(frozen=True)
class OperatorRule:
    """What the MPS backend does with one overload.

    `name` is `add.Tensor`. `mps`, `sparse_mps` and `sparse_csr_mps` tell for which layouts a kernel is registered.
    `always_fallback`: the registered kernel is the CPU fallback. `from_python`: torch registers it from Python.
    `composite`: no kernel of its own is needed, the operator is made of others. `waits` is what the host
    waits for, and `wait` its rule, if the operator itself reads back. `cross_device` is the first
    device check. `scalar_cpu_ok` and `cpu_index_ok` tell what may lie on the CPU all the same.
    """

    name: str
    mps: bool
    sparse_mps: bool
    sparse_csr_mps: bool
    always_fallback: bool
    from_python: bool
    composite: bool
    waits: Wait
    wait: SyncPoint | None
    cross_device: Family
    scalar_cpu_ok: bool
    cpu_index_ok: bool
    random: bool
    view: bool

    @property
    def fate(self) -> Fate:
        """What happens to a call with a dense mps tensor; composite operators count as native."""
        if self.always_fallback:
            return Fate.ALWAYS_FALLBACK
        return Fate.NATIVE if self.mps or self.composite else Fate.FALLBACK

    @property
    def traits(self) -> Trait:
        """The properties as bits, dispatch keys included."""
        return (
            (Trait.SCALAR_CPU_OK if self.scalar_cpu_ok else NO_TRAITS)
            | (Trait.CPU_INDEX_OK if self.cpu_index_ok else NO_TRAITS)
            | (Trait.RANDOM if self.random else NO_TRAITS)
            | (Trait.ALIASES if self.view else NO_TRAITS)
            | (Trait.DENSE if self.mps else NO_TRAITS)
            | (Trait.SPARSE if self.sparse_mps else NO_TRAITS)
            | (Trait.FROM_PYTHON if self.from_python else NO_TRAITS)
        )


@lru_cache(maxsize=1)
def operator_rules(torch_version: str | TorchVersion | None = None) -> Mapping[str, OperatorRule]:
    """The rule of every overload in the installed wheel, by name (`add.Tensor`, `relu`); treat it as read-only.

    Overloads that torchgen adds (`constant_pad_nd.out`) are absent: they are composite.
    Raises UnsupportedTorchError if `torch_version` is another release than the installed one, whose operator list is
    not there to read, or lies outside the supported range.
    """
    rules = version_rules(_installed(torch_version))
    return {name: _rule(overload, rules) for name, overload in native_functions().items()}


def fallback_operators(torch_version: str | TorchVersion | None = None) -> tuple[str, ...]:
    """Overloads with a CPU kernel but none that a dense mps tensor can reach: the ones that fall back, or raise.

    Quantized RNN cells, which torch registers outside `native_functions.yaml`, are not in the list; they fall back too.

    Raises UnsupportedTorchError like `operator_rules`.
    """
    functions = native_functions()
    return tuple(
        rule.name
        for rule in operator_rules(torch_version).values()
        if rule.fate is Fate.FALLBACK and "CPU" in functions[rule.name].dispatch
    )


@lru_cache(maxsize=1)
def core_table(torch_version: str | TorchVersion | None = None) -> tuple[CoreRow, ...]:
    """The overloads with an MPS, SparseMPS or SparseCsrMPS kernel, always-fallback ones included, as plain tuples.

    Overloads that are absent have no kernel of their own on mps: the dispatcher decides between composite and fallback.
    Raises UnsupportedTorchError like `operator_rules`.
    """
    version = _installed(torch_version)
    functions = native_functions()
    rules = version_rules(version)
    rows: list[CoreRow] = []
    added = {*_ERROR_ONLY, *rules.always_fallback, *rules.python_kernels}
    for name, overload in functions.items():
        if name in added or not _MPS_KEYS.isdisjoint(overload.dispatch):
            rule = _rule(overload, rules)
            fate = Fate.ALWAYS_FALLBACK if rule.always_fallback else Fate.NATIVE
            when = rule.wait.when if rule.wait else When.ALWAYS
            family_number, traits, wait = int(rule.cross_device), int(rule.traits), int(rule.waits)
            rows.append((f"aten::{name}", int(fate), family_number, traits, wait, when.value))
    return tuple(rows)


def _installed(torch_version: str | TorchVersion | None) -> TorchVersion:
    """The installed version, checked against the one asked for."""
    installed = check_supported(installed_torch().version)
    if torch_version is not None and check_supported(torch_version).release != installed.release:
        raise UnsupportedTorchError(
            f"anymps: the operators of torch {torch_version} are not known here: torch {installed} is installed"
        )
    return installed


def _rule(overload: Overload, rules: VersionRules) -> OperatorRule:
    name, dispatch = overload.name, overload.dispatch
    always = name in rules.always_fallback
    from_python = name in rules.python_kernels
    mps = always or from_python or name in _ERROR_ONLY or "MPS" in dispatch
    sparse = "SparseMPS" in dispatch
    csr = "SparseCsrMPS" in dispatch
    composite = not mps and _is_composite(overload)
    wait = (wait_of(name, rules.version) if mps else None) or (
        wait_of(name, rules.version, sparse=True) if sparse else None
    )
    check = _family(overload, rules, mps=mps, sparse=sparse or csr, always=always)
    return OperatorRule(
        name=name,
        mps=mps,
        sparse_mps=sparse,
        sparse_csr_mps=csr,
        always_fallback=always,
        from_python=from_python,
        composite=composite,
        waits=Wait.FALLBACK if always else wait.kind if wait else Wait.NONE,
        wait=wait,
        cross_device=check,
        scalar_cpu_ok=mps and _scalar_cpu_ok(overload, check),
        cpu_index_ok=name in _CPU_INDEX,
        random="nondeterministic_seeded" in overload.tags,
        view=overload.is_view,
    )


def _is_composite(overload: Overload) -> bool:
    """Whether a kernel made of other operators serves mps; an entry without a dispatch section is such a kernel."""
    if overload.structured_delegate:
        return (
            True  # torchgen makes the functional and in-place forms from `out`: CompositeExplicitAutogradNonFunctional
        )
    if not overload.dispatch:
        return not overload.structured
    return any(key in overload.dispatch for key in _COMPOSITE)


def _family(overload: Overload, rules: VersionRules, *, mps: bool, sparse: bool, always: bool) -> Family:
    if always:
        return Family.NONE  # the CPU fallback moves every tensor itself
    if mps:
        return family(overload.name, rules.version)
    return Family.SPARSE if sparse else Family.NONE


def _scalar_cpu_ok(overload: Overload, check: Family) -> bool:
    """TensorIterator.cpp allows one CPU scalar in binary, comparison and ternary point-wise operators."""
    if overload.name in _SCALAR_CPU:
        return True
    return (
        check is Family.ITERATOR
        and "pointwise" in overload.tags
        and overload.tensor_arguments >= 2
        and overload.name not in _NO_SCALAR_CPU
    )
