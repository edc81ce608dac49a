"""Rules about precision: bfloat16 by chip, float16 gradients, and autocast for another device."""

from __future__ import annotations

import pytest

from anymps.findings import RULES, Severity, Story, find
from anymps.record import Phase, RecordingBuilder, Site, Wait
from anymps.report import render_summary
from rule_loops import LIBRARY, META, OPTIMIZER, Extra, ids, loop, once, only


def products(dtype: str, *, phase: Phase = Phase.FORWARD, operator: str = "aten::mm", every: int = 1) -> Extra:
    """Two matrix products in every `every`-th step, under an autocast of the first one."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        site = builder.site("train.py", 15, "main", "with torch.autocast('mps'):")
        if step == 0:
            builder.note("autocast", start_ns=time, site=site, device="mps", dtype=dtype)
        line = builder.site("model.py", 4, "forward", "x = x @ w")
        for number in range(2 if step % every == 0 else 0):
            builder.entry(
                operator, start_ns=time + number, phase=phase, site=line, inputs=[f"{dtype}[2, 2]", f"{dtype}[2, 2]"]
            )

    return extra


@pytest.mark.parametrize(("mac", "expected"), [("M1 16GB", 1), ("M2 Max 32GB", 1), ("M3 Pro 18GB", 0), ("M4 16GB", 0)])
def test_bfloat16_by_chip(mac: str, expected: int) -> None:
    """MPS305: on chips of the apple7 and apple8 families, at the line that chose bfloat16."""
    findings = find(loop(products("bfloat16"), meta={**META, "mac": mac}))
    assert [finding.id for finding in findings] == ["MPS305"] * expected
    for finding in findings:
        assert (finding.site.line, finding.count, finding.per_step) == (15, 20, 2.0)
        assert ": 2 a step." in finding.what


def test_the_autocast_that_chose_bfloat16() -> None:
    """MPS305 stands at the one of this dtype on mps, whichever others there were before."""

    def others(builder: RecordingBuilder, step: int, time: int) -> None:
        for line, dtype, device in ((8, "float16", "mps"), (9, "bfloat16", "cpu")):
            site = builder.site("train.py", line, "main", "with torch.autocast(kind):")
            builder.note("autocast", start_ns=time, site=site, device=device, dtype=dtype)
        products("bfloat16")(builder, step, time)

    findings = find(loop(others, meta={**META, "mac": "M1 8GB"}))
    assert [finding.site.line for finding in findings if finding.id == "MPS305"] == [15]


def test_bfloat16_of_no_known_mac() -> None:
    """MPS305 is silent where the recording names no Mac, and about operators that are no matrix products."""
    assert ids(loop(products("bfloat16"), meta={"torch_version": "2.13.0"})) == []
    assert ids(loop(products("bfloat16", operator="aten::relu"), meta={**META, "mac": "M1 8GB"})) == []


def test_float16_that_is_no_mistake() -> None:
    """MPS306 is silent with a GradScaler, in forward alone, in bfloat16, and in a fifth of the steps."""

    def scaled(builder: RecordingBuilder, step: int, time: int) -> None:
        products("float16", phase=Phase.BACKWARD)(builder, step, time)
        builder.entry("aten::_amp_foreach_non_finite_check_and_unscale_", start_ns=time + 5, phase=Phase.OPTIMIZER)

    assert ids(loop(scaled)) == []
    assert ids(loop(products("float16"))) == []
    assert ids(loop(products("bfloat16", phase=Phase.BACKWARD))) == []
    assert ids(loop(products("float16", phase=Phase.BACKWARD, every=5))) == []


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"dtypes": ["float16"]}, ["MPS307"]),
        ({"dtypes": ["float16"], "eps": ["2e-08"]}, ["MPS307"]),
        ({"dtypes": ["float16"], "eps": ["3e-08"]}, []),  # rounds up to the least number
        ({"dtypes": ["float16"], "fused": ["True"]}, []),
        ({"dtypes": ["float16"], "name": "SGD", "eps": []}, []),
        ({"dtypes": ["bfloat16"]}, []),
    ],
)
def test_eps_that_is_zero(facts: dict[str, object], expected: list[str]) -> None:
    """MPS307: float16 parameters, an optimizer that divides, and an eps that rounds to zero."""
    assert ids(once("optimizer", **{**OPTIMIZER, **facts})) == expected


@pytest.mark.parametrize(
    ("what", "facts", "expected"),
    [
        ("autocast", {"device": "cuda", "dtype": "float16"}, ["MPS821"]),
        ("autocast", {"device": "cpu", "dtype": "bfloat16", "refused": False}, ["MPS821"]),
        ("autocast", {"device": "mps", "dtype": "float16"}, []),
        ("autocast", {"device": "mps", "dtype": "float16", "refused": False}, []),
        ("autocast", {"device": "mps", "dtype": "float64", "refused": True}, ["MPS824"]),
        ("grad_scaler", {"device": "cuda"}, ["MPS822"]),
        ("grad_scaler", {"device": "mps"}, []),
        ("backward", {"autocast": "float16"}, ["MPS823"]),
        ("compile", {"backend": "mps", "mode": ""}, ["MPS831"]),
        ("compile", {"backend": "inductor", "mode": "max-autotune"}, ["MPS832"]),
        ("compile", {"backend": "eager", "mode": "max-autotune"}, []),
        ("compile", {"backend": "inductor", "mode": ""}, []),
    ],
)
def test_what_is_asked_of_torch(what: str, facts: dict[str, object], expected: list[str]) -> None:
    """MPS82x and MPS83x: each by its facts, at the program's own lines and not at those of a library."""
    assert ids(once(what, **facts)) == expected
    assert ids(once(what, file=LIBRARY, **facts)) == []


@pytest.mark.parametrize(
    ("device", "dtype", "severity"),
    [
        ("", "", Severity.INFO),
        ("mps", "bfloat16", Severity.INFO),
        ("mps", "float16", Severity.WARNING),
        ("cuda", "float16", Severity.WARNING),
    ],
)
def test_a_scaler_that_nothing_needs(device: str, dtype: str, severity: Severity) -> None:
    """MPS822 is a note without a change where nothing is asked for in float16: the scaler would only add waits."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        if step == 0:
            scaler = builder.site("train.py", 7, "main", 'scaler = torch.amp.GradScaler("cuda")')
            builder.note("grad_scaler", start_ns=time, site=scaler, device="cuda")
            if device:
                region = builder.site("train.py", 9, "main", "with torch.autocast(kind):")
                builder.note("autocast", start_ns=time, site=region, device=device, dtype=dtype)

    (finding,) = [finding for finding in find(loop(extra)) if finding.id == "MPS822"]
    assert (finding.severity, finding.edit is None) == (severity, severity is Severity.INFO)
    assert finding.what == "A `GradScaler` was made for cuda, and the program computes on mps."
    if severity is Severity.INFO:
        assert finding.why == (
            "Without CUDA, a GradScaler for CUDA switches itself off. Nothing is lost: only float16 gradients of "
            "float32 parameters are scaled, and a scaler for mps would make the host wait in every step."
        )
        assert finding.fix == (
            'Leave the scaler out on mps. For float16 under autocast, make it with `torch.amp.GradScaler("mps")`.'
        )


def test_a_scaler_of_float16_parameters() -> None:
    """MPS822 is a warning where operators compute in float16, with autocast or without."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        site = builder.site("train.py", 7, "main", 'scaler = torch.amp.GradScaler("cuda")')
        builder.note("grad_scaler", start_ns=time, site=site, device="cuda")
        builder.entry("aten::mm", start_ns=time + 1, inputs=["float16[2, 2]", "float16[2, 2]"])

    assert [finding.severity for finding in find(loop(extra)) if finding.id == "MPS822"] == [Severity.WARNING]


IN_FLOAT32 = (
    'Keep the parameters in float32 and compute under `torch.autocast("mps")` with a `torch.amp.GradScaler("mps")`: '
    "it refuses gradients of float16 parameters."
)


def test_no_scaler_for_half_parameters() -> None:
    """MPS305, MPS306 and MPS822 propose none for parameters that lie in half precision: it raises for float16."""

    def of(dtype: str, phase: Phase) -> Extra:
        def extra(builder: RecordingBuilder, step: int, time: int) -> None:
            builder.entry("aten::mm", start_ns=time, phase=phase, inputs=[f"{dtype}[2, 2]", f"{dtype}[2, 2]"])
            if step == 0:
                builder.note("optimizer", start_ns=time, **{**OPTIMIZER, "dtypes": [dtype], "fused": ["True"]})
                builder.note("grad_scaler", start_ns=time, site=builder.site("train.py", 3), device="cuda")

        return extra

    found = {one.id: one for one in find(loop(of("float16", Phase.BACKWARD)))}
    assert (found["MPS306"].fix, found["MPS822"].severity) == (IN_FLOAT32, Severity.INFO)
    (emulated,) = [
        one for one in find(loop(of("bfloat16", Phase.FORWARD), meta={**META, "mac": "M1 8GB"})) if one.id == "MPS305"
    ]
    assert emulated.fix == IN_FLOAT32


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_autocast_for_mps_keeps_the_dtype(dtype: str) -> None:
    """MPS821 names the dtype: that of mps is float16 where none is given, whatever the other device's is."""
    assert only(once("autocast", device="cuda", dtype=dtype)).fix == (
        f"Name the device of the tensors: `torch.autocast(device_type=x.device.type, dtype=torch.{dtype})`."
    )


def test_autocasts_for_a_device_under_one_name() -> None:
    """MPS821: one finding for all lines that are given it, which says where the name is set."""
    program = """device_type = "cuda" if "cuda" in device else "cpu"
with autocast(device_type):
with torch.autocast(device_type=device_type):
with torch.autocast("cpu"):
"""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        for line, source in enumerate(program.splitlines()[1:] if step == 0 else (), 2):
            site = builder.site("train.py", line, "main", source, text=program)
            builder.note("autocast", start_ns=time + line, site=site, device="cpu", dtype="bfloat16")

    named, other = find(loop(extra))
    assert [site.line for site in (named.site, *named.related_sites, other.site)] == [2, 3, 4]
    assert named.what == (
        "`torch.autocast` was asked for cpu, and the program computes on mps. The device is that of `device_type`, "
        "which train.py:1 sets."
    )
    assert named.fix == "Set `device_type` to the type of the tensors' device: `x.device.type`."
    assert other.what == "`torch.autocast` was asked for cpu, and the program computes on mps."


def test_a_type_that_takes_mps_for_the_cpu() -> None:
    """MPS821: at the line that gives the name, also where autocast was left out, once for all that go by the name."""
    program = """device_type = "cuda" if "cuda" in device else "cpu"
with torch.autocast(device_type=device_type):
"""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        if step == 0:
            lines = program.splitlines()
            chosen, used = (builder.site("train.py", at, "main", lines[at - 1], text=program) for at in (1, 2))
            builder.note("device_type", start_ns=time, site=chosen, other=used, name="device_type", call="autocast")
            builder.note("autocast", start_ns=time + 1, site=used, device="cpu", dtype="bfloat16")

    finding = only(loop(extra))
    assert (finding.id, finding.site.line, [site.line for site in finding.related_sites]) == ("MPS821", 1, [2])
    assert finding.what == '`device_type` is "cpu" here for a device on mps, so `autocast` has no effect on mps.'
    assert finding.fix == (
        'If it is to act on mps, write `device_type = "mps" if "mps" in device else "cuda" if "cuda" in device else '
        '"cpu"`. Other machines behave as before.'
    )


@pytest.mark.parametrize("file", ["train.py", LIBRARY])
def test_an_autocast_island_for_another_device(file: str) -> None:
    """MPS825 names both lines, at a line of a library too: its results are the program's."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        if step == 0:
            island = builder.site(file, 9, "attention", 'with torch.autocast("cuda", enabled=False):')
            outer = builder.site("train.py", 5, "main", 'with torch.autocast("mps"):')
            builder.note("autocast_island", start_ns=time, site=island, other=outer, device="cuda", dtype="float16")

    finding = only(loop(extra))
    assert (finding.id, finding.site.file, finding.site.line) == ("MPS825", file, 9)
    assert finding.what == "Autocast was switched off for cuda, while autocast to float16 was on for mps."
    assert finding.fix == (
        "Switch it off for mps where there is one: "
        '`with torch.autocast("mps" if torch.backends.mps.is_available() else "cuda", enabled=False):`.'
    )
    assert [(site.file, site.line) for site in finding.related_sites] == [("train.py", 5)]
    assert finding.related_as == "switched on at"


def test_broken_numbers_come_before_what_is_slow() -> None:
    """MPS307, which costs no time, comes before a value read in every step, also as what to change first."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        line = builder.site("train.py", 9, "main", "losses.append(loss.item())")
        builder.entry("aten::_local_scalar_dense", start_ns=time, site=line, wait=Wait.ITEM, phase=Phase.LOSS_READ)
        if step == 0:
            made = builder.site("train.py", 12, "main", "optimizer = AdamW(model.parameters())")
            builder.note("optimizer", start_ns=time, site=made, **{**OPTIMIZER, "dtypes": ["float16"]})

    recording = loop(extra)
    findings = find(recording)
    assert [finding.id for finding in findings][:2] == ["MPS307", "MPS201"]
    assert "Change first: train.py:12\n  MPS307" in render_summary(Story.of(recording), findings)


def test_wrong_results_come_before_what_raises() -> None:
    """Of errors, those about wrong results come first, wherever they stand."""
    raises = RULES["MPS101"].finding(Site("a.py", 1), what="", count=1)
    wrong = RULES["MPS601"].finding(Site("z.py", 9), what="", count=1)
    assert sorted([raises, wrong], key=lambda finding: finding.order) == [wrong, raises]
