"""What the backend does with each operator: registrations, fallback, waits, and the table for the native core."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from anymps._errors import UnsupportedTorchError
from anymps._vocabulary import Fate, Wait
from anymps.rules import (
    WAITS,
    Family,
    Trait,
    When,
    core_table,
    fallback_operators,
    family,
    in_force,
    installed_torch,
    operator_rules,
    version_rules,
    wait_of,
)
from anymps.rules._wheel import parse_native_functions

# Registered in the macOS arm64 wheels, counted in the TORCH_LIBRARY_IMPL initialisers of libtorch_cpu.dylib:
# overloads for MPS, SparseMPS, SparseCsrMPS.
REGISTERED = {
    (2, 11): (871, 160, 13),
    (2, 12): (882, 160, 13),
    (2, 13): (894, 160, 13),
    (2, 14): (914, 161, 13),
    (2, 15): (930, 161, 13),
}
RELEASES = ("2.11", "2.12", "2.13", "2.14", "2.15")

SMALL_YAML = """\
# a comment
- func: add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)
  device_check: NoCheck   # TensorIterator
  structured: True
  structured_inherits: TensorIteratorBase
  dispatch:
    CPU, CUDA: add_out
    SparseMPS: add_out_sparse_mps
    MPS: add_out_mps
  tags: pointwise

- func: add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
  structured_delegate: add.out
  dispatch:
    SparseCPU: add_sparse
    # SparseMPS: not this line
  tags: [core, pointwise]

- func: alias(Tensor(a) self) -> Tensor(a)
  dispatch:
    CompositeExplicitAutograd: alias
"""


def test_the_yaml_reader_reads_what_it_needs() -> None:
    """Dispatch keys, delegates, tags, iterators and views; sparse keys are not inherited from the out form."""
    found = parse_native_functions(SMALL_YAML)
    assert list(found) == ["add.out", "add.Tensor", "alias"]
    add = found["add.Tensor"]
    assert add.dispatch == {"CPU": "add_out", "CUDA": "add_out", "MPS": "add_out_mps", "SparseCPU": "add_sparse"}
    assert (frozenset({"core", "pointwise"}), True, True, 2) == (
        add.tags,
        add.iterator,
        add.structured,
        add.tensor_arguments,
    )
    assert [entry.is_view for entry in found.values()] == [False, False, True]


def test_registrations_equal_the_macos_wheel() -> None:
    """The installed release has as many MPS, SparseMPS and SparseCsrMPS overloads as its macOS wheel registers."""
    rules = operator_rules().values()
    counts = (
        sum(rule.mps and not rule.from_python for rule in rules),
        sum(rule.sparse_mps for rule in rules),
        sum(rule.sparse_csr_mps for rule in rules),
    )
    assert REGISTERED[installed_torch().version.release] == counts


def test_fallback_operators_have_only_a_cpu_kernel() -> None:
    """An operator that falls back has a CPU kernel in torch's dispatcher and no composite one; together with the eight
    quantized RNN cells, which torch registers elsewhere, torch 2.13 has 166 of them."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for name in fallback_operators():
        assert has(f"aten::{name}", "CPU"), name
        assert not has(f"aten::{name}", "CompositeImplicitAutograd"), name
        assert not has(f"aten::{name}", "CompositeExplicitAutograd"), name
        assert not has(f"aten::{name}", "CompositeExplicitAutogradNonFunctional"), name
    if installed_torch().version.release == (2, 13):
        assert len(fallback_operators()) == 166 - 8
        assert {"mode", "poisson", "heaviside.out", "take", "logit_"} <= set(fallback_operators())


def test_no_overload_is_missing_from_the_table() -> None:
    """Each overload with a dense CPU kernel is native, composite, always falling back, or in the fallback list."""
    falls_back = set(fallback_operators())
    for name, rule in operator_rules().items():
        assert (rule.fate is Fate.FALLBACK) >= (name in falls_back), name
        assert not (rule.mps and name in falls_back), name


def test_always_fallback_operators() -> None:
    """Operators registered with the CPU fallback count as registered, wait, and accept any device."""
    for name in version_rules(installed_torch().version).always_fallback:
        rule = operator_rules()[name]
        assert (
            rule.mps,
            rule.fate,
            rule.waits,
            rule.cross_device,
        ) == (True, Fate.ALWAYS_FALLBACK, Wait.FALLBACK, Family.NONE)


def test_composite_operators_have_no_fate_of_their_own() -> None:
    """An operator made of others is native but not in the core's table."""
    assert (
        operator_rules()["matmul"].mps,
        operator_rules()["matmul"].composite,
        operator_rules()["matmul"].fate,
    ) == (False, True, Fate.NATIVE)
    assert "aten::matmul" not in {row[0] for row in core_table()}


def test_the_core_table_holds_plain_numbers() -> None:
    """Each row is (name, fate, family, traits, wait, condition) in the published encodings."""
    rows = {row[0]: row[1:] for row in core_table()}
    registered = [rule for rule in operator_rules().values() if rule.mps or rule.sparse_mps or rule.sparse_csr_mps]
    assert len(registered) == len(rows)
    dense, both, none = Trait.DENSE, Trait.DENSE | Trait.SPARSE, (Wait.NONE, "always")
    assert (Fate.NATIVE, Family.ITERATOR, both | Trait.SCALAR_CPU_OK, *none) == rows["aten::add.Tensor"]
    assert (Fate.NATIVE, Family.SAME_GPU, both, *none) == rows["aten::mm"]
    assert (Fate.NATIVE, Family.ITERATOR, both, *none) == rows["aten::sin"]
    assert (Fate.NATIVE, Family.NONE, dense, Wait.ITEM, "always") == rows["aten::_local_scalar_dense"]
    assert (Fate.NATIVE, Family.NONE, dense | Trait.ALIASES, *none) == rows["aten::as_strided"]
    assert (Fate.ALWAYS_FALLBACK, Family.NONE, dense, Wait.FALLBACK, "always") == rows["aten::embedding_renorm_"]
    assert Trait.RANDOM & rows["aten::bernoulli_.float"][2]
    assert (Family.ITERATOR, dense | Trait.CPU_INDEX_OK, Wait.INSIDE_OPERATOR, "index_is_mask") == (
        rows["aten::index.Tensor"][1:]
    )
    assert (Fate.NATIVE, Family.SPARSE, Trait.SPARSE, Wait.INSIDE_OPERATOR, "always") == rows["aten::_coalesce"]
    assert len({int(trait) for trait in Trait}) == len(Trait.__members__)
    assert all(type(value) is int for row in rows.values() for value in row[:-1])


def test_every_wait_rule_names_real_operators() -> None:
    """A name in a wait rule that holds for the installed release is an operator of it."""
    names = set(operator_rules())
    bases = {name.partition(".")[0] for name in names}
    for key, rule in WAITS.items():
        assert rule.source
        assert rule.what
        if rule in in_force([rule], installed_torch().version.release):
            assert [name for name in rule.operators if name not in (names if "." in name else bases)] == [], key


@pytest.mark.parametrize(
    ("operator", "waits"),
    [
        ("nonzero", [True, True, True, True, True]),
        ("nonzero_static", [False, False, False, False, False]),
        ("multinomial", [True, True, False, False, False]),
        ("normal.Tensor_Tensor", [False, False, True, True, True]),
        ("linalg_qr", [False, True, True, False, False]),
        ("_linalg_solve_ex", [True, True, True, False, False]),
        ("linalg_matrix_exp", [False, False, False, True, True]),
        ("eq.Tensor", [False, False, False, False, False]),
    ],
)
def test_waits_by_release(operator: str, waits: list[bool]) -> None:
    """Which releases read back inside an operator."""
    assert waits == [wait_of(operator, release) is not None for release in RELEASES]


def test_conditional_waits_say_when() -> None:
    """A wait that does not always happen has a condition and its name, and the other way round."""
    for rule in WAITS.values():
        if rule.kind is Wait.INSIDE_OPERATOR:
            assert bool(rule.condition) == (rule.when is not When.ALWAYS), rule
    found = wait_of("_fused_adamw_.tensor_lr", "2.13")
    assert found is not None
    assert (found.condition, found.when) == ("lr is an mps tensor", When.SCALAR_ON_MPS)


def test_a_sparse_kernel_has_its_own_waits() -> None:
    """`index_select` reads back on a sparse tensor only."""
    assert wait_of("index_select", "2.13") is None
    assert wait_of("index_select", "2.13", sparse=True) is WAITS["sparse_select"]


@pytest.mark.parametrize(
    ("operator", "letters"),
    [("add.Tensor", "IIIII"), ("bmm", "PPPMM"), ("max", "PPPII"), ("max.dim", "PPPMM"), ("where.self", "IIIII")],
)
def test_families_by_release(operator: str, letters: str) -> None:
    """Operators move from MPSGraph (P) to Metal (M, I) over the releases."""
    names = {"I": Family.ITERATOR, "M": Family.METAL, "P": Family.PLACEHOLDER}
    assert [names[letter] for letter in letters] == [family(operator, release) for release in RELEASES]


def test_scalars_and_indices_that_may_lie_on_the_cpu() -> None:
    """Binary operators take a 0-dim CPU tensor; clamp bounds, matrix products and unary operators do not."""
    rules = operator_rules()
    accepts = ["mul.Tensor", "add_.Tensor", "where.self", "masked_fill_.Tensor", "_fused_sgd_.tensor_lr", "lerp.Tensor"]
    refuses = ["mm", "clamp.Tensor", "exp", "embedding_dense_backward", "bmm", "_fused_sgd_"]
    assert [True] * len(accepts) == [rules[name].scalar_cpu_ok for name in accepts]
    assert [False] * len(refuses) == [rules[name].scalar_cpu_ok for name in refuses]
    assert {"index.Tensor", "index.Tensor_out", "_index_put_impl_"} == {
        name for name, rule in rules.items() if rule.cpu_index_ok
    }


def test_another_release_than_the_installed_one_is_refused() -> None:
    """Operators are read from the installed wheel; another release's are not guessed."""
    installed = installed_torch().version
    other = "2.12" if installed.release != (2, 12) else "2.13"
    with pytest.raises(UnsupportedTorchError) as caught:
        operator_rules(other)
    assert (f"anymps: the operators of torch {other} are not known here: torch {installed} is installed") == str(
        caught.value
    )


def test_rules_and_mac_do_not_import_torch() -> None:
    """Asking the rules and naming a Mac works without loading torch."""
    code = (
        "import sys, types; from importlib.util import find_spec;"
        "package = types.ModuleType('anymps');"
        "package.__path__ = list(find_spec('anymps').submodule_search_locations);"
        "sys.modules['anymps'] = package;"
        "import anymps.mac, anymps.rules; anymps.rules.core_table(); anymps.mac.parse_mac('M1');"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
