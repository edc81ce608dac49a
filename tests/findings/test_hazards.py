"""Known bugs of MPS: each is recognised at its call, and nearly the same call, Mac or release is silent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import anymps
from anymps.device import enforce_hazards, native, state
from anymps.findings import Finding, Severity, find
from anymps.findings.rules._known_faults import MARK
from anymps.record import Fate, Flag, Phase, RecordingBuilder
from anymps.rules.faults import (
    COMPILED_LAYER_NORM,
    THREADS,
    Hazard,
    all_hazards,
    hazards,
    hazards_with_kernels,
)
from device.compare import text_of
from hazard_cases import FIRST, M1, M3, TABLE, F, calls, enforce, last, on, run, wide

pytestmark = pytest.mark.usefixtures("virtual_device")


TEXTS = Path(__file__).parents[1] / "data" / "hazard_findings.txt"
RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
SOURCES = ("native", "observer")


@pytest.fixture(autouse=True)
def own_hazards(virtual_device: torch.device) -> Iterator[None]:
    """Puts those of the installed torch and the tests' Mac back in force."""
    yield
    current = state()
    assert current is not None and current.mac is not None
    mac = current.mac
    enforce_hazards(hazards(torch.__version__, mac.macos, mac.metal_family))


def met(identity: str, code: str, source: str, *refusals: type[Exception]) -> list[Finding]:
    """The findings of the bug's kind for one call in a recording, which the device may refuse so: wrong, or slow."""
    with anymps.record(source=source) as capture, contextlib.suppress(*refusals):
        run(code)
    slow = FIRST[identity].is_slow
    return [one for one in find(capture.recording) if one.id in FIRST and FIRST[one.id].is_slow == slow]


@pytest.mark.parametrize("source", SOURCES)
def test_a_call_that_autograd_makes(source: str) -> None:
    """In a gradient of a gradient: at the line of the forward, with what can be done where no argument is at hand."""
    enforce("MPS621")
    x, weight = on(2, 3, 8, 8, grad=True), on(4, 3, 3, 3, grad=True)
    with anymps.record(source=source) as capture:
        y = F.conv2d(x, weight)  # forward
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        first.square().sum().backward()
    (finding,) = [finding for finding in find(capture.recording) if finding.id == "MPS621"]
    assert finding.site.source == "y = F.conv2d(x, weight)  # forward"
    assert finding.fix == (
        "Pass `weight.contiguous()`. If autograd makes this call, in the backward of the line, use a release without "
        "the bug, or compute the line and its gradients on the CPU."
    )


# What is too large for any machine, or for a test: the operator is asked, not run.
SHAPES: tuple[tuple[str, str, str, tuple[Any, ...], tuple[Any, ...]], ...] = (
    ("MPS604", "2.14.0", "aten::copy_", (torch.zeros(4, dtype=torch.float64), "mps float32[4]"),
     (torch.zeros(4), "mps float32[4]")),
    ("MPS616", "2.15.0", "aten::bmm", ("mps float32[65537, 256, 64]", "mps float32[65537, 64, 256]"),
     ("mps float32[65536, 256, 64]", "mps float32[65536, 64, 256]")),
    ("MPS652", "2.13.0", "aten::cat", (["mps float32[32768, 32768]", "mps float32[32769, 32768]"], 0),
     (["mps float32[32768, 32768]", "mps float32[32768, 32768]"], 0)),
    ("MPS653", "2.12.0", "aten::col2im", ("mps float32[1, 65536, 65537]",), ("mps float32[1, 65536, 65536]",)),
    ("MPS654", "2.14.0", "aten::avg_pool2d", ("mps float32[1, 32769, 256, 256]",),
     ("mps float32[1, 32768, 256, 256]",)),
    ("MPS655", "2.15.0", "aten::max_pool2d_with_indices", ("mps float32[1, 32769, 256, 256]",),
     ("mps float32[1, 32768, 256, 256]",)),
    ("MPS658", "2.13.0", "aten::_softmax_backward_data", ("mps float32[32768, 32769]",),
     ("mps float32[32768, 32768]",)),
    ("MPS660", "2.14.0", "aten::_linalg_svd", ("mps float32[512, 4, 4]",), ("mps float32[511, 4, 4]",)),
    ("MPS660", "2.14.0", "aten::_linalg_svd", ("mps float32[2, 128, 32]",), ("mps float32[1, 128, 128]",)),
)  # fmt: skip


OTHER_RELEASE = {"MPS604": "this release refuses the copy", "MPS660": "this release decomposes on the CPU alone"}
OF_A_RECORDING = {"MPS673", "MPS681"}  # no call shows them, as below
TOO_LARGE = {row[0] for row in SHAPES} - OTHER_RELEASE.keys()
EXAMPLES = [(identity, bug.example) for identity, bug in FIRST.items() if identity not in TOO_LARGE | OF_A_RECORDING]
OF_THE_DEVICE = {
    "MPS618": "only the values show it",
    "MPS674": "a Mac's process is gone before an observer can tell",
}
SEVERAL = {"MPS630": ["MPS630"] * 2, "MPS635": ["MPS634", "MPS635"]}
"""Examples with a forward and a backward, each with a bug."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("identity", "code"), [*EXAMPLES, *calls("also")])
def test_a_call_that_meets_a_fault_is_a_finding(identity: str, code: str, source: str) -> None:
    """Once, at its line, by the right rule and no other."""
    if identity in OTHER_RELEASE and RELEASE != (2, 14):
        pytest.skip(OTHER_RELEASE[identity])
    if identity in OF_THE_DEVICE and source == "observer":
        pytest.skip(OF_THE_DEVICE[identity])
    enforce(identity)
    found = met(identity, code, source, RuntimeError)
    several = SEVERAL.get(identity, [identity]) if code == FIRST[identity].example else [identity]
    assert [finding.id for finding in found] == several
    assert {finding.count for finding in found} == {code.count("lstm(x)") or 1}
    assert {Path(finding.site.file).name for finding in found} <= {"example.py", "hazard_cases.py"}


@pytest.mark.parametrize(("size", "expected"), [(3, ["MPS630"]), (4, [])])
def test_the_backward_of_uneven_windows(size: int, expected: list[str]) -> None:
    """MPS630: by the sizes of the gradient, also where the forward was computed elsewhere."""
    values, places = nn.functional.adaptive_max_pool2d(torch.rand(1, 2, 5, 5), size, return_indices=True)
    arguments = (torch.ones_like(values).to("mps"), on(1, 2, 5, 5), places.to("mps"))
    enforce("MPS630")
    with anymps.record() as capture:
        torch.ops.aten.adaptive_max_pool2d_backward(*arguments)
    assert [finding.id for finding in find(capture.recording) if finding.id.startswith("MPS6")] == expected


@pytest.mark.filterwarnings("ignore:.*deterministic")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("identity", "code"), calls("near"))
def test_a_call_nearly_the_same_is_none(identity: str, code: str, source: str) -> None:
    """Nothing is said of calls that a Mac computes right."""
    enforce(identity)
    assert met(identity, code, source) == []


def made(argument: Any) -> Any:
    """A tensor on mps for `mps float32[2, 3]`, and for each of a list; anything else as it is."""
    if isinstance(argument, list):
        return [made(item) for item in argument]
    if not isinstance(argument, str):
        return argument
    return wide(*(int(size) for size in argument.partition("[")[2].rstrip("]").split(",")))


@pytest.mark.parametrize(
    ("identity", "version", "operator", "met_by", "near"), SHAPES, ids=[f"{row[0]} {row[3]}" for row in SHAPES]
)
def test_sizes_that_no_test_can_run(
    identity: str, version: str, operator: str, met_by: tuple[Any, ...], near: tuple[Any, ...]
) -> None:
    """The recognition is a function of sizes and dtypes: just above the limit, and just not."""
    if identity == "MPS660" and RELEASE < (2, 14):
        pytest.skip("this release computes decompositions on the CPU alone")
    enforce(identity, version)
    ask = native().hazards_of
    assert identity in ask(operator, tuple(made(argument) for argument in met_by))
    assert identity not in ask(operator, tuple(made(argument) for argument in near))


def test_every_fault_has_an_example() -> None:
    """A few lines of Python, on the row that the page is made of."""
    assert [identity for identity, hazard in FIRST.items() if not 0 < len(hazard.example.splitlines()) < 7] == []
    for identity, hazard in FIRST.items():
        compile(hazard.example, identity, "exec")


NO_CALLS = (THREADS, COMPILED_LAYER_NORM)


def text_of_finding(finding: Finding) -> str:
    """A finding as a block of text."""
    return "\n".join(
        [
            f"{finding.id} {finding.severity.label}: {finding.title}",
            finding.what,
            finding.why,
            finding.fix,
            finding.source,
        ]
    )


def test_the_words_of_every_finding() -> None:
    """The whole text of each finding, as tests/data/hazard_findings.txt has it."""
    builder = RecordingBuilder(meta={"torch_version": "2.15.0"})
    for identity in dict.fromkeys(hazard.id for hazard in all_hazards() if hazard.check not in NO_CALLS):
        builder.entry(f"{MARK}{identity} aten::op", start_ns=0, fate=Fate.MARK, flags=Flag.HAZARD)
    in_two_threads(builder)
    found = sorted(find(builder.close()), key=lambda finding: finding.id)
    assert "\n\n".join(map(text_of_finding, found)) + "\n" == TEXTS.read_text(encoding="utf-8")


REAL = {"virtual": True, "real_calls": {"aten::amax": 2, "aten::abs.out": 1, "aten::index_add": 3}}
RIGHT = "A known bug in the backend. The values here are right. On a Mac they may be wrong."


@pytest.mark.parametrize(
    ("meta", "call", "why"),
    [
        ({"virtual": True}, "MPS620 aten::amax", RIGHT),
        (
            REAL,
            "MPS620 aten::amax",
            "A known bug in the backend. On a Mac the values may be wrong. Here they may be, too: PyTorch's own "
            "kernels computed `amax`.",
        ),
        (REAL, "MPS620 aten::amin", RIGHT),  # which the CPU computed
        ({**REAL, "kernels_torch": "2.15.0"}, "MPS620 aten::amax", RIGHT),  # where it is mended
        (
            {**REAL, "torch_version": "2.15.0", "kernels_torch": "2.13.0"},
            "MPS620 aten::amax",
            "A known bug in the backend. On a Mac the values may be wrong. Here they may be, too: the kernels of torch "
            "2.13.0 computed `amax`.",
        ),
        (
            {"virtual": False},
            "MPS620 aten::amax",
            "A known bug in the backend. The values may be wrong, without an error.",
        ),
        (
            {"virtual": False},
            "MPS611 aten::mm",
            "A known bug in the backend. The values are wrong, without an error.",
        ),
        (
            REAL,
            "MPS611 aten::mm",
            "A known bug in the backend. The values here are right. On a Mac they are wrong, without an error.",
        ),
        (
            {**REAL, "real_calls": {"aten::mm.out": 1}},
            "MPS611 aten::mm",
            "A known bug in the backend. On a Mac the values are wrong, without an error. Here they can be, too: "
            "PyTorch's own kernels computed `mm`.",
        ),
        ({}, "MPS661 aten::index_add", "The values are the same in every run here. On a Mac the last digits vary."),
        (
            REAL,
            "MPS661 aten::index_add_",
            "On a Mac the last digits vary from run to run. Here they may, too: PyTorch's own kernels computed "
            "`index_add`.",
        ),
        ({"virtual": False}, "MPS661 aten::index_add", "The last digits vary from run to run."),
        (
            {"virtual": False},
            "MPS618 aten::fmod.Tensor",
            "Metal leaves the result unspecified: no error, and any number.",
        ),
        (
            REAL,
            "MPS618 aten::fmod.Tensor",
            "Metal leaves the result unspecified: no error, and any number. Here it is the result of dividing by one; "
            "a Mac may give another.",
        ),
    ],
)
def test_a_finding_says_whose_values_the_run_had(meta: dict[str, object], call: str, why: str) -> None:
    """The CPU's, those of PyTorch's own kernels where they computed the operator and have the fault, or a Mac's."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0", **meta})
    builder.entry(f"{MARK}{call}", start_ns=0, fate=Fate.MARK, flags=Flag.HAZARD)
    assert [finding.why for finding in find(builder.close()) if finding.id == call[:6]] == [why]


def in_two_threads(builder: RecordingBuilder, *, apart: int = 0, flags: Flag | None = None) -> None:
    """Two operators of two threads, the second `apart` ns after the first has begun, which takes 100."""
    site = builder.site("train.py", 7)
    builder.entry("aten::mm", start_ns=1000, duration_ns=100, thread=0, site=site)
    builder.entry("aten::exp", start_ns=1000 + apart, duration_ns=100, thread=1, site=site, flags=flags)


@pytest.mark.parametrize(
    ("version", "apart", "flags", "expected"),
    [
        ("2.14.0", 99, None, ["MPS673"]),
        ("2.14.0", 100, None, []),
        ("2.14.0", 0, Flag.AUTOGRAD_THREAD, []),
        ("2.13.0", 0, None, []),
        ("unknown", 0, None, []),
    ],
)
def test_two_threads_at_once(version: str, apart: int, flags: Flag | None, expected: list[str]) -> None:
    """MPS673: operators of two threads that overlap, where torch is known to mind; not those of a backward."""
    builder = RecordingBuilder(meta={"torch_version": version})
    in_two_threads(builder, apart=apart, flags=flags)
    assert [finding.id for finding in find(builder.close())] == expected


@pytest.mark.parametrize(
    ("version", "facts", "expected"),
    [
        ("2.12.0", {}, ["MPS681"]),
        ("2.13.0", {}, []),
        ("unknown", {}, []),
        ("2.12.0", {"layer_norm": False}, []),
        ("2.12.0", {"backend": "aot_eager"}, []),
    ],
)
def test_compiled_layer_norm(version: str, facts: dict[str, object], expected: list[str]) -> None:
    """MPS681: a compiled module with a LayerNorm, by the default backend, where torch compiles it wrong."""
    builder = RecordingBuilder(meta={"torch_version": version})
    builder.entry("aten::mm", start_ns=0)
    given = {"backend": "inductor", "mode": "", "layer_norm": True, **facts}
    builder.note("compile", start_ns=1, site=builder.site("train.py", 7), **given)
    found = find(builder.close())
    assert [finding.id for finding in found] == expected
    for finding in found:
        assert text_of_finding(finding) == (
            "MPS681 warning: Compiled LayerNorm: wrong values\n"
            "A module with an nn.LayerNorm was compiled in a way that MPS can compute incorrectly: an nn.LayerNorm "
            "compiled "
            "by inductor was off by more than the range of its input, without a warning.\n"
            "A known bug in the backend. On a Mac the values may be wrong.\n"
            "Use torch 2.13 or newer, or do not compile.\n"
            "pytorch issue #191976; reported in August 2026 of a release before 2.13; right in 2.13 (the reporter and "
            "a maintainer); torch 2.11 to 2.12 (fixed in 2.13)"
        )


@pytest.mark.parametrize(
    "divide",
    [
        torch.floor_divide,
        torch.remainder,
        torch.fmod,
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        lambda x, y: x.clone().floor_divide_(y),
        lambda x, y: 7 % y,
    ],
)
def test_integers_divided_by_zero(divide: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    """Only the values show it, so a device alone can tell that computes them; floats have infinity for it."""
    x = torch.tensor([7, -7], device="mps")
    zero, one = torch.tensor([0, 2], device="mps"), torch.tensor([1, 2], device="mps")
    with anymps.record() as capture:
        divide(x, one)
        divide(x.float(), zero.float())
        divide(x, zero)
    found = [finding for finding in find(capture.recording) if finding.id.startswith("MPS6")]
    assert [(finding.id, finding.severity, finding.count) for finding in found] == [("MPS618", Severity.WARNING, 1)]
    assert found[0].site.file == __file__


@pytest.mark.parametrize(
    ("identity", "version", "macos", "family", "expected"),
    [
        ("MPS604", "2.13.0", (26, 4), M3, False),
        ("MPS604", "2.14.1", (26, 4), M3, True),
        ("MPS604", "2.15.0", (26, 4), M3, False),
        ("MPS608", "2.13.0", (15, 6), M1, False),
        ("MPS608", "2.13.0", (26, 0), M1, True),
        ("MPS608", "2.13.0", (27, 0), M1, False),
        ("MPS608", "2.13.0", (26, 4), M3, False),
        ("MPS615", "2.11.0", (15, 0), M3, True),
        ("MPS615", "2.11.0", (14, 7), M3, False),
        ("MPS615", "2.11.0", (26, 4), M3, False),
    ],
)
def test_a_fault_holds_for_its_releases_and_macs_alone(
    identity: str, version: str, macos: tuple[int, int], family: str, expected: bool
) -> None:
    """By torch release, macOS and GPU."""
    assert (identity in {hazard.id for hazard in hazards(version, macos, family)}) == expected


def test_the_results_are_right() -> None:
    """What MPS computes incorrectly is computed right here."""
    x = torch.arange(6.0)
    y = x.to("mps")
    assert y[2:].to("cpu", torch.float16).tolist() == [2, 3, 4, 5]
    assert y.tolist() == x.tolist()
    target, source = torch.zeros(6), x.to("mps")
    target[::2].copy_(source[::2])
    assert target.tolist() == [0, 0, 2, 0, 4, 0]
    assert (y * x[3]).tolist() == (x * x[3]).tolist()


def test_the_words_of_the_refusals() -> None:
    """What would abort a Mac raises here, and says whose words they are; a refusal of MPS has its own words."""
    enforce("MPS628")
    strided = on(1, 3, 3, 3, 2).permute(0, 4, 1, 2, 3)
    assert text_of(RuntimeError, nn.BatchNorm3d(2).to("mps"), strided) == (
        "anymps: batch norm of a 5-D tensor that is not contiguous ends the process on a Mac (uncaught "
        "NSRangeException, pytorch issue 190645); this exception is anymps' own. Normalise `x.contiguous()`."
    )
    q = on(1, 2, 4, 8)
    attention = torch.ops.aten._scaled_dot_product_attention_math_for_mps
    assert (
        text_of(RuntimeError, lambda: attention(q, q, q, dropout_p=0.5))
        == "scaled_dot_product_attention for MPS does not support dropout."
    )
    enforce("MPS625", "2.13.0", (15, 0))
    text = text_of(NotImplementedError, F.conv1d, on(1, 1, 65540), on(1, 1, 3))
    assert text == "Output channels > 65536 not supported at the MPS device. "


def test_a_fault_of_a_backward_is_at_its_forwards_line() -> None:
    """The gradient's call is found at the line of the forward one, in its module, in the backward phase."""
    enforce("MPS627")
    norm = nn.BatchNorm2d(3).to("mps")
    with anymps.record() as capture:
        loss = norm(last(on(2, 3, 4, 4, grad=True))).mean()  # here
        loss.backward()
    (found,) = capture.recording.hazards()
    assert (found.operator, found.phases) == (f"{MARK}MPS627 aten::native_batch_norm_backward", (Phase.BACKWARD,))
    assert found.site.source.endswith("# here")


class Scaled(nn.Module):
    """A fault on one line, and what a backward needs of it on the next."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled = x * TABLE[1]  # scaled
        return scaled.exp()


@pytest.mark.parametrize("source", SOURCES)
def test_a_fault_in_a_recomputed_block_is_at_its_own_line(source: str) -> None:
    """A checkpoint computes its block again while the backward of a later line runs; the call's line is its own."""
    enforce("MPS605")
    block = Scaled()
    with anymps.record(source=source) as capture:
        checkpoint(block, on(3, grad=True), use_reentrant=False).mean().backward()
    (found,) = capture.recording.hazards()
    # The forward, the recomputation, and the gradient, which is a product with the same scalar.
    assert (found.count, found.phases, found.modules) == (3, (Phase.FORWARD, Phase.BACKWARD), ("Scaled",))
    assert found.site.source.endswith("# scaled")


def of_operator(known: tuple[Hazard, ...], operator: str) -> set[str]:
    """The faults of one operator, slow paths aside."""
    return {hazard.id for hazard in known if operator in hazard.operators and not hazard.is_slow}


@pytest.mark.parametrize(
    ("torch_version", "kernels", "computed", "operator", "expected"),
    [
        ("2.13.0", "2.15.0", {"amax"}, "amax", set()),  # mended in these kernels
        ("2.13.0", "2.15.0", {"amax"}, "amin", {"MPS620"}),  # which they don't compute
        ("2.15.0", "2.13.0", {"amax"}, "amax", {"MPS620"}),
        ("2.15.0", "2.13.0", {"amax"}, "amin", set()),
        ("2.13.0", "2.13.0", {"amax"}, "amax", {"MPS620"}),
        ("2.13.0", "2.15.0", {"addcmul"}, "addcmul", {"MPS617"}),  # both have it
        ("2.13.0", "2.15.0", {"linear"}, "linear", {"MPS609"}),  # the process aborts: that is no value
    ],
)
def test_wrong_values_are_those_of_the_kernels_release(
    torch_version: str, kernels: str, computed: set[str], operator: str, expected: set[str]
) -> None:
    """Of the operators that another release's kernels compute; all else is the installed torch's."""
    known = hazards_with_kernels(torch_version, kernels, computed, (26, 0), "apple9")
    assert of_operator(known, operator) == expected


def test_kernels_of_the_installed_release_change_no_fault() -> None:
    """The same calls meet the same faults."""

    def pairs(known: tuple[Hazard, ...]) -> set[tuple[str, str]]:
        return {(hazard.id, name) for hazard in known for name in hazard.operators or ("",)}

    own = hazards("2.13.0", (26, 0), "apple9")
    assert pairs(hazards_with_kernels("2.13.0", "2.13.0", {"amax", "copy_", "add"}, (26, 0), "apple9")) == pairs(own)


def test_a_wrong_number_names_its_known_fault() -> None:
    """By its id and with its fix; what the fault is says its own finding, at the same line."""
    wrong: dict[str, Any] = {"kind": "number", "operator": "aten::amax", "dtype": "int64", "shapes": [[40]]}
    wrong |= {
        "layout": "contiguous",
        "index": [],
        "expected": "39",
        "found": "0",
        "allowed": "0",
        "bound": "exact",
        "source": "",
    }
    wrong |= {"wrong": 1, "count": 1, "order": 1, "follows": 0, "backward": False, "mpsgraph": False}
    builder = RecordingBuilder(meta={"torch_version": "2.13.0", "virtual": True})
    builder.entry(f"{MARK}MPS620 aten::amax", start_ns=0, fate=Fate.MARK, flags=Flag.HAZARD)
    builder.note("numbers", start_ns=1, **wrong)
    found = {finding.id: finding for finding in find(builder.close())}
    assert found.keys() == {"MPS620", "MPS696"}
    assert found["MPS696"].what == (
        "`aten::amax` of int64 [40] got its only element wrong. It is 0; the CPU computes 39. This result must be "
        "exact. This is the known bug MPS620."
    )
    assert found["MPS696"].fix == "Reduce in int32, for example `x.int().amax().long()`."
