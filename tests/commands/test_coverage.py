"""What is known of an operator: the table of registered kernels by release, the query, and `anymps coverage`."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from anymps.commands import _coverage as commands_coverage
from anymps.commands import main
from anymps.rules import (
    FIRST_RELEASE,
    LAST_RELEASE,
    SUPPORTED,
    Kind,
    _coverage,
    coverage,
    fallback_operators,
    find_operators,
    installed_torch,
    native_since,
    nearest_operators,
    operator_rules,
    parse_torch_version,
    registered,
    version_rules,
)

RELEASES = [(2, minor) for minor in range(7, 16)]
INSTALLED = installed_torch().version.release
OTHER = next(release for release in RELEASES[4:] if release != INSTALLED)


def test_the_table_equals_the_installed_wheel() -> None:
    """For the installed release the table holds exactly what the wheel's own operator list says."""
    table = registered(INSTALLED)
    for key, from_list in (
        ("MPS", {name for name, rule in operator_rules().items() if rule.mps and not rule.always_fallback}),
        ("SparseMPS", {name for name, rule in operator_rules().items() if rule.sparse_mps}),
        ("SparseCsrMPS", {name for name, rule in operator_rules().items() if rule.sparse_csr_mps}),
        ("Fallback", {name for name, rule in operator_rules().items() if rule.always_fallback}),
    ):
        known = {name for name, keys in table.items() if key in keys}
        if key == "MPS":
            known |= {name for name, keys in table.items() if "Python" in keys}
        assert known == from_list, key


def test_the_table_holds_as_many_as_each_wheel_registers() -> None:
    """The numbers of initialisers counted in the macOS arm64 wheels, for MPS and both sparse keys."""
    numbers = [
        tuple(sum(bool({*wanted} & keys) for keys in registered(release).values()) for wanted in wanteds)
        for release in RELEASES
        for wanteds in [(("MPS", "Fallback"), ("SparseMPS",), ("SparseCsrMPS",))]
    ]
    assert numbers == [
        (745, 0, 0), (817, 0, 0), (851, 107, 13), (859, 158, 13), (871, 160, 13), (882, 160, 13), (894, 160, 13),
        (914, 161, 13), (930, 161, 13),
    ]  # fmt: skip
    assert (RELEASES[0], RELEASES[-1]) == (FIRST_RELEASE, LAST_RELEASE)


@pytest.mark.parametrize("release", RELEASES[4:])
def test_the_table_agrees_with_the_rules_of_each_release(release: tuple[int, int]) -> None:
    """What always falls back and what comes from Python is the same in both places."""
    rules = version_rules(f"2.{release[1]}")
    table = registered(release)
    assert {name for name, keys in table.items() if "Fallback" in keys} == set(rules.always_fallback)
    assert {name for name, keys in table.items() if "Python" in keys} == set(rules.python_kernels)


@pytest.mark.parametrize(
    ("operator", "since"),
    [
        ("add.Tensor", (2, 7)),
        ("aten::take.out", (2, 15)),
        ("take.no_such_overload", (2, 15)),
        ("linalg_qr", (2, 12)),
        ("col2im", (2, 8)),  # the CPU fallback before
        ("linalg_svd", (2, 14)),  # composite from then on
        ("native_group_norm", (2, 7)),  # from Python up to 2.12
        ("embedding_renorm_", None),
        ("mode", None),
        ("coalesce", None),  # for no tensor that is dense
    ],
)
def test_first_release(operator: str, since: tuple[int, int] | None) -> None:
    """An operator runs on mps from the release with its kernel on, or from the end of its fallback."""
    assert native_since(operator) == since


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("take", ["take", "take.out"]),
        ("aten::take", ["take", "take.out"]),
        ("aten::take.out", ["take.out"]),
        ("take.out", ["take.out"]),
        ("torch.take", ["take", "take.out"]),
        ("torch.Tensor.put_()", ["put_"]),
        ("torch.linalg.qr", ["linalg_qr", "linalg_qr.out"]),
        ("F.channel_shuffle", ["channel_shuffle"]),
        ("torch.nn.functional.channel_shuffle", ["channel_shuffle"]),
        ("aten::erf?_", ["erfc_"]),
        ("take.o?t", ["take.out"]),
        ("heavyside", []),
        ("torchvision::nms", []),
    ],
)
def test_operators_by_the_names_that_people_use(query: str, found: list[str]) -> None:
    """An operator is found by its own name, its overload's, its Python name, or a pattern."""
    assert find_operators(query) == found


def test_nearest_names() -> None:
    """A misspelt operator has the names that are most like it."""
    assert nearest_operators("torch.heavyside") == ["heaviside", "heaviside_"]
    assert nearest_operators("qqqqqqqqqq") == []


def test_kinds_in_the_installed_release() -> None:
    """Native, composite, always on the CPU, missing, of other backends; a structured form has its worker's kind."""
    kinds = {name: coverage(name).kind for name in ("mm", "softmax.int", "embedding_renorm_", "mode", "_cudnn_rnn")}
    assert kinds == {
        "mm": Kind.NATIVE,
        "softmax.int": Kind.COMPOSITE,
        "embedding_renorm_": Kind.ALWAYS_FALLBACK,
        "mode": Kind.MISSING,
        "_cudnn_rnn": Kind.ELSEWHERE,
    }
    form = coverage("special_ndtri")
    assert (form.kind, form.through) == (Kind.MISSING, "aten::special_ndtri.out")
    assert coverage("adaptive_avg_pool3d").related == ("aten::adaptive_avg_pool3d.out", "aten::_adaptive_avg_pool3d")


def test_each_operator_that_falls_back_is_missing() -> None:
    """What falls back by the rules for the native core is missing here."""
    assert {coverage(name).kind for name in fallback_operators()} == {Kind.MISSING}


def test_details() -> None:
    """Dtypes, wait and limits of a release come with the operator, and not with one that is missing."""
    qr = coverage("linalg_qr", (2, 12))
    assert [dtype for dtype, _ in qr.refused] == ["float16", "complex64", "bfloat16"]
    assert qr.refused[0][1] == ("RuntimeError", "linalg_qr: MPS currently supports float32 only")
    assert qr.wait is not None
    assert qr.wait.what == "the status of the kernel is read"
    assert [limit.error for limit in qr.limits] == ["UserWarning"]  # the refusal of dtypes is not said twice
    assert coverage("silu", (2, 13)).widened == ("bool", "uint8", "int8", "int16", "int32")
    missing = coverage("linalg_qr", (2, 11))
    assert (missing.kind, missing.refused, missing.wait, missing.limits) == (Kind.MISSING, (), None, ())


def test_another_release_says_what_is_assumed() -> None:
    """What is composite in another release than the installed one is an assumption; old releases have no details."""
    assert not coverage("mm", OTHER).assumed
    assert coverage("softmax.int", OTHER).assumed
    assert not coverage("softmax.int").assumed
    assert not coverage("mm", (2, 9)).details
    assert coverage("mm", (2, 11)).details


QR = """\
on mps in torch 2.12

aten::linalg_qr, aten::linalg_qr.out
  status      native: it has an MPS kernel
  since       on mps since torch 2.12
  refuses     float16, complex64, bfloat16: RuntimeError: linalg_qr: MPS currently supports float32
              only
  host waits  the status of the kernel is read
              (aten/src/ATen/native/mps/operations/LinearAlgebra.mm)
  limit       UserWarning: linalg_qr: MPS implementation is currently limited to min(m,n) <= 512,
              falling back to CPU.
"""
TAKE = """\
on mps in torch 2.9

aten::take, aten::take.out
  status      missing: raises NotImplementedError, or runs on the CPU with
              PYTORCH_ENABLE_MPS_FALLBACK=1; no kernel is registered in this release, the rest is as
              in the installed torch
  since       on mps since torch 2.15
  instead     write x.flatten()[i] for torch.take(x, i)
  not known   dtypes, waits and limits: known from torch 2.11 on
"""
MASKED_FILL = """\
on mps in torch 2.14

aten::masked_fill_.Tensor
  status      native: it has an MPS kernel
  since       on mps since torch 2.7 or earlier
  refuses     complex128: RuntimeError: Unsupported data type: Undefined
  more dtypes uint16, uint32, uint64: computed on MPS, not on the CPU
  host waits  the fill value is read, if the value is an mps tensor
              (aten/src/ATen/native/mps/operations/Indexing.mm)
  limit       RuntimeError: masked_fill not supported for tensors of more than 2**32 elements
"""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["torch.linalg.qr", "--torch", "2.12"], QR),
        (["--torch", "2.9.1", "take"], TAKE),
        (["--torch", "2.14", "masked_fill_.Tensor"], MASKED_FILL),
    ],
)
def test_answer(capsys: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    """`anymps coverage OPERATOR` says what is known of the release; overloads with the same answer stand together."""
    assert main(["coverage", *words]) == 0
    assert capsys.readouterr() == (text, "")


def test_many_operators_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """A pattern with many answers gives one line an overload."""
    assert main(["coverage", "special_*", "--torch", "2.8"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"{len(lines)} overloads on mps in torch 2.8"
    assert [" ".join(line.split()) for line in lines if "bessel_j0" in line] == [
        "aten::special_bessel_j0 native, on mps since torch 2.8",
        "aten::special_bessel_j0.out native, on mps since torch 2.8",
        *(f"aten::special_spherical_bessel_j0{end} native, on mps since torch 2.7 or earlier" for end in ("", ".out")),
    ]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["heavyside"], "torch has no operator 'heavyside'; nearest: heaviside, heaviside_ (anymps coverage --help)"),
        (["qqqqqqqqqq"], "torch has no operator 'qqqqqqqqqq' (anymps coverage --help)"),
        (["take", "--torch", "2.16"], "nothing is known about torch 2.16: --torch accepts 2.7 to 2.15"),
        (["take", "--torch", "new"], '"new" is not a torch version; expected something like 2.13.0'),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    """An unknown operator or release is one line and 2."""
    assert main(["coverage", *words]) == 2
    assert capsys.readouterr() == ("", f"anymps: {text}\n")


def test_no_torch_is_imported() -> None:
    """The question is answered from files: torch is not loaded for it, in a real process."""
    code = "import sys; from anymps.commands import main; main(['coverage', 'take']); print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "False"


@pytest.fixture
def unsupported_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The installed torch is one whose rules are not known."""
    newer = replace(installed_torch(), version=parse_torch_version("2.99.0"))
    for module in (_coverage, commands_coverage):
        monkeypatch.setattr(module, "installed_torch", lambda: newer)
    for cached in (_coverage._functions, _coverage._names):
        cached.cache_clear()
    yield
    for cached in (_coverage._functions, _coverage._names):
        cached.cache_clear()


@pytest.mark.usefixtures("unsupported_torch")
def test_other_releases_need_no_torch(capsys: pytest.CaptureFixture[str]) -> None:
    """Where no supported torch is installed, another release can still be asked about; the installed one cannot."""
    assert main(["coverage", "linalg_qr", "--torch", "2.12"]) == 0
    assert "status      native: it has an MPS kernel" in capsys.readouterr().out
    assert main(["coverage", "linalg_qr"]) == 2
    assert capsys.readouterr().err == (
        f"anymps: torch 2.99.0 is not supported; install torch {SUPPORTED}, whose MPS rules are known\n"
    )


@pytest.mark.parametrize(("columns", "longest"), [("80", 80), ("300", 100)])
def test_a_terminal_gets_no_longer_lines_than_it_has_room_for(
    columns: str, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor any longer than 100, which a file gets as well."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["coverage", "linalg_qr", "--torch", "2.12"]) == 0
    lengths = [len(line) for line in terminal.getvalue().splitlines()]
    assert longest - 15 < max(lengths) <= longest
