"""Rules about a call that MPS refuses: missing operators, float64, mixed devices, a generator of another device."""

from __future__ import annotations

from typing import Any

import pytest

from anymps.findings import RULES, Finding, Severity, is_refusal
from anymps.record import Recording, RecordingBuilder, RefusalKind, Site
from recordings import META
from rule_loops import only

TORCH = {"torch_version": "2.13.0+cpu"}


def refused(kind: RefusalKind, error: str, message: str, operator: str, **detail: object) -> Recording:
    """A run that a refusal ends; in `detail`, `origin=(line, source)` made the culprit and `source` is the line."""
    builder = RecordingBuilder(meta=TORCH)
    origin = detail.pop("origin", None)
    source = str(detail.pop("source", "y = x.to(device) + labels"))
    builder.refusal(
        kind, error, message, operator=operator, start_ns=0, detail=detail,
        site=builder.site("train.py", 12, "main", source),
        origin=builder.site("train.py", origin[0], "main", origin[1]) if isinstance(origin, tuple) else 0,
    )  # fmt: skip
    return builder.close()


def test_missing_operator() -> None:
    """MPS101: an operator without kernel, with what to write instead, when it will be there, and the way around."""
    text = "The operator 'aten::heaviside.out' is not currently implemented for the MPS device."
    finding = only(refused(RefusalKind.MISSING, "NotImplementedError", text, "aten::heaviside.out"))
    assert finding == Finding(
        rule=RULES["MPS101"],
        severity=Severity.ERROR,
        site=Site("train.py", 12, "main", "y = x.to(device) + labels"),
        count=1,
        per_step=0.0,
        cost_ns=(0, 0),
        what="`aten::heaviside.out` has no MPS kernel and raised NotImplementedError.",
        why="PyTorch has no Metal kernel for it, and with the CPU fallback off the call raises NotImplementedError.",
        fix=(
            "Write `torch.where(x == 0, v, (x > 0).to(x.dtype))` for `torch.heaviside(x, v)`. "
            "torch 2.15 has an MPS kernel for it. "
            "Or set PYTORCH_ENABLE_MPS_FALLBACK=1 before `import torch` to run it on the CPU, which is slower."
        ),
        source="aten/src/ATen/mps/MPSFallback.mm; native_functions.yaml of the macOS wheels, torch 2.7 to 2.15",
    )


def test_missing_operator_without_known_equivalent() -> None:
    """MPS101: where nothing native is known, only the fallback is offered."""
    finding = only(refused(RefusalKind.MISSING, "NotImplementedError", "", "aten::mode"))
    assert (
        finding.fix == "Set PYTORCH_ENABLE_MPS_FALLBACK=1 before `import torch` to run it on the CPU, which is slower."
    )


CPU = "Run this call on the CPU: `.cpu()` before it, `.to(device)` after it."


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        (
            "linalg.lu_factor(): MPS only supports floats.",
            f"The operator takes only float32: convert real numbers. For complex ones: {CPU}",
        ),
        (
            "linalg.solve.triangular(); Only float is supported!",
            f"The operator takes only float32: convert real numbers. For complex ones: {CPU}",
        ),
        (
            "linalg.lu_factor(): MPS doesn't support complex types.",
            f"The operator takes no complex numbers on mps. {CPU}",
        ),
        (
            "linalg_inv: not supported for complex types yet!",
            f"The operator takes no complex numbers on mps. {CPU}",
        ),
    ],
)
def test_dtype_that_no_conversion_helps(message: str, fix: str) -> None:
    """MPS302 proposes no dtype that the operator refuses, such as complex64 to a complex tensor."""
    assert only(refused(RefusalKind.DTYPE, "RuntimeError", message, "aten::_linalg_solve_ex")).fix == fix


def test_same_refusal_at_one_line_is_one_finding() -> None:
    """A refusal that the script catches and repeats is one finding with a count."""
    builder = RecordingBuilder(meta=TORCH)
    line = builder.site("train.py", 3)
    for time in range(4):
        builder.refusal(RefusalKind.MISSING, "NotImplementedError", "", operator="aten::mode", start_ns=time, site=line)
    assert only(builder.close()).count == 4


@pytest.mark.parametrize(
    ("expression", "fix"),
    [
        ("np.zeros(3)", "`np.zeros(3, dtype=np.float32)`"),
        ("np.linspace(0.1, max(a, 1))", "`np.linspace(0.1, max(a, 1), dtype=np.float32)`"),
        ("np.random.rand(4, 2)", "`np.random.rand(4, 2).astype(np.float32)`"),
        ("numpy.array([1.0])", "`numpy.array([1.0], dtype=numpy.float32)`"),
        ("torch.from_numpy(np.eye(3))", "`torch.from_numpy(np.eye(3, dtype=np.float32))`"),
        ("torch.as_tensor(1 / np.ones(3))", "`torch.as_tensor(1 / np.ones(3)).float()`"),
    ],
)
def test_float64_from_numpy(expression: str, fix: str) -> None:
    """MPS301: float64 with the line that made it, NumPy's default named, and that line rewritten."""
    finding = only(
        refused(
            RefusalKind.FLOAT64, "TypeError", "Cannot convert a MPS Tensor to float64", "aten::_to_copy",
            name="x", expression=expression, numpy_default=True, origin=(4, f"x = torch.from_numpy({expression})"),
        )
    )  # fmt: skip
    assert (finding.id, finding.severity, finding.site.line) == ("MPS301", Severity.ERROR, 12)
    assert [site.line for site in finding.related_sites] == [4]
    assert finding.what == (
        f"`x`, made by `{expression}` at train.py:4, is float64, NumPy's default dtype; going to mps raised TypeError."
    )
    assert finding.fix == f"Write {fix} at train.py:4, or `.float()` before it goes to the device."


@pytest.mark.parametrize(
    "expression", ["", "np.zeros(3) / np.ones(3)", "np.ones(3, np.float64)", "weights", "torch.stack(a)"]
)
def test_float64_of_an_expression_that_is_left_alone(expression: str) -> None:
    """MPS301: an expression that cannot be rewritten safely is not rewritten."""
    finding = only(
        refused(RefusalKind.FLOAT64, "TypeError", "", "aten::_to_copy", expression=expression, origin=(4, "w = ..."))
    )
    assert finding.fix == "Write `x.float().to(device)`, or make it float32 at train.py:4."


def test_float64_by_the_default_dtype_of_torch() -> None:
    """MPS301: where torch's default dtype is float64, every line would need a cast, so the default comes first."""
    default = "Let torch's default dtype be float32: `torch.set_default_dtype` made it float64"
    message, operator = "Cannot convert a MPS Tensor to float64", "aten::_to_copy"

    def found(source: str, **detail: Any) -> Finding:
        return only(refused(RefusalKind.FLOAT64, "TypeError", message, operator, source=source, **detail))

    plain = found("x = torch.randn(3)", torch_default=True)
    assert plain.what == "A tensor is float64, as is torch's default dtype here, and going to mps raised TypeError."
    assert plain.fix == f"{default}. Or write `dtype=torch.float32` where it is made."
    moved = found(
        "x.to(device)", torch_default=True, name="x", expression="torch.randn(3)", origin=(4, "x = torch.randn(3)")
    )
    assert moved.what == (
        "`x`, made by `torch.randn(3)` at train.py:4, is float64, as is torch's default dtype here; going to mps "
        "raised TypeError."
    )
    assert moved.fix == f"{default}. For this one alone, write `x.float().to(device)`."
    for source, detail in (
        ("x = torch.randn(3)", {}),
        ("x = torch.randn(3, dtype=torch.float64)", {"torch_default": True}),
        ("y = x.double()", {"torch_default": True}),
        ("x = torch.from_numpy(a).to(device)", {"torch_default": True, "array": True}),
    ):
        assert "default" not in (told := found(source, **detail)).what + told.fix


def test_float64_of_an_array() -> None:
    """MPS301: an array of NumPy's has no `.float()`."""
    finding = only(
        refused(
            RefusalKind.FLOAT64, "TypeError", "", "aten::_to_copy", expression="np.ones(3)", array=True,
            origin=(4, "w = np.ones(3)"),
        )
    )  # fmt: skip
    assert finding.fix == (
        'Write `np.ones(3, dtype=np.float32)` at train.py:4, or `.astype("float32")` before it goes to the device.'
    )


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("y = x.double() * 2", "x.float()"),
        ("y = x.to(torch.float64) * 2", "x.to(torch.float32)"),
        ("y = x.type(torch.double)", "x.type(torch.float32)"),
    ],
)
def test_float64_asked_for_on_the_line(source: str, written: str) -> None:
    """MPS301: double precision that the refused line itself asks for is what to leave out."""
    finding = only(refused(RefusalKind.FLOAT64, "TypeError", "", "aten::_to_copy", source=source))
    assert finding.fix == (f"Write `{written}`; what needs double precision is computed on the CPU: `.cpu().double()`.")


def test_float64_asked_for_on_the_way_to_the_device() -> None:
    """MPS301: the dtype that is named beside the device is changed, and nothing is cast before it."""
    finding = only(
        refused(RefusalKind.FLOAT64, "TypeError", "", "aten::_to_copy", source="y = x.to(device, torch.float64)")
    )
    assert finding.fix == "Write `x.to(device, torch.float32)`."


@pytest.mark.parametrize(
    "source", ["y = x.to(dtype)", "y = x.to(y.dtype)", "y = x.to(device, kind)", "y = x.to(dtype=kind, device=device)"]
)
def test_float64_of_a_line_that_names_a_dtype(source: str) -> None:
    """MPS301: a cast before `.to` changes nothing if `.to` is given a dtype, so none is proposed."""
    finding = only(refused(RefusalKind.FLOAT64, "TypeError", "", "aten::_to_copy", source=source))
    assert finding.fix == RULES["MPS301"].fix


@pytest.mark.parametrize(
    ("expression", "fix"),
    [
        ("torch.float64", "Write `kind = torch.float32` at train.py:4."),
        ("torch.double", "Write `kind = torch.float32` at train.py:4."),
        ("getattr(torch, name)", "Make `kind` float32 at train.py:4 if the device is mps."),
    ],
)
def test_float64_of_a_dtype_with_a_name(expression: str, fix: str) -> None:
    """MPS301: where a line asks for a dtype by a name, the name is told, and the line that set it."""
    finding = only(
        refused(
            RefusalKind.FLOAT64, "TypeError", "", "aten::_to_copy", name="kind", expression=expression, dtype=True,
            source="y = x.to(device, kind)", origin=(4, f"kind = {expression}"),
        )
    )  # fmt: skip
    assert finding.what == "`kind`, set at train.py:4, is float64; a tensor of that dtype on mps raised TypeError."
    assert finding.fix == fix
    assert [site.line for site in finding.related_sites] == [4]


def test_float64_of_a_dtype_that_is_set_elsewhere() -> None:
    """MPS301: without the line that set the dtype, its name is told."""
    finding = only(
        refused(
            RefusalKind.FLOAT64, "TypeError", "", "aten::_to_copy", name="kind", expression="", dtype=True,
            source="y = x.to(device, kind)",
        )
    )  # fmt: skip
    assert finding.what == "`kind` is float64; a tensor of that dtype on mps raised TypeError."
    assert finding.fix == "Make `kind` float32 if the device is mps."


def test_float64_of_unknown_origin() -> None:
    """MPS301: without an origin the finding stays with what is known."""
    finding = only(refused(RefusalKind.FLOAT64, "TypeError", "", "aten::empty.memory_format"))
    assert finding.what == "A tensor is float64, and going to mps raised TypeError."
    assert finding.related_sites == ()


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (RefusalKind.COMPLEX128, "MPS302"),
        (RefusalKind.DTYPE, "MPS302"),
        (RefusalKind.RANK, "MPS303"),
        (RefusalKind.LAYOUT, "MPS304"),
        (RefusalKind.MEMORY, "MPS501"),
        (RefusalKind.ARGUMENT, "MPS105"),
        (RefusalKind.DETERMINISM, "MPS107"),
    ],
)
def test_refusals_that_keep_the_backends_words(kind: RefusalKind, rule: str) -> None:
    """MPS302 to MPS304, MPS501 and MPS6xx tell what the backend said."""
    finding = only(refused(kind, "RuntimeError", "the backend's text", "aten::mm"))
    assert (finding.id, finding.what) == (rule, "`aten::mm` raised RuntimeError: the backend's text")


# MPS4xx


def test_tensors_on_different_devices() -> None:
    """MPS401: the tensor on the CPU by its name, with the line that made it."""
    text = "Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!"
    finding = only(
        refused(
            RefusalKind.DEVICE, "RuntimeError", text, "aten::add.Tensor",
            name="labels", expression="torch.zeros(3)", origin=(5, "labels = torch.zeros(3)"),
        )
    )  # fmt: skip
    assert (finding.id, [site.line for site in finding.related_sites]) == ("MPS401", [5])
    assert finding.what == (
        "`labels`, made by `torch.zeros(3)` at train.py:5, is on the CPU, "
        f"and `aten::add.Tensor` raised RuntimeError: {text}"
    )
    assert finding.fix == "Move it before this line: `labels = labels.to(device)`."


def test_tensor_on_the_cpu_where_no_device_is_named() -> None:
    """MPS401: a line is shown only if its names are there."""
    finding = only(refused(RefusalKind.DEVICE, "RuntimeError", "no", "aten::add.Tensor", name="y", source="z = x + y"))
    assert finding.fix == "Move `y` to their device before this line."


def test_tensor_on_the_cpu_without_a_plain_name() -> None:
    """MPS401: what is no plain variable is not assigned to."""
    finding = only(refused(RefusalKind.DEVICE, "RuntimeError", "no", "aten::mm", name="batch['x']"))
    assert finding.what == "`batch['x']` is on the CPU, and `aten::mm` raised RuntimeError: no"
    assert finding.fix == "Move the tensor to the device of the others: `.to(device)`."


def test_tensor_that_was_moved_for_cuda_alone() -> None:
    """MPS401: `is_cuda` is False on mps, and the line above that would have moved it did not run."""
    text = "import torch\nnoise = draw()\nif logits.is_cuda:\n    noise = noise.cuda()\ny = logits + Variable(noise)\n"
    builder = RecordingBuilder(meta=TORCH)
    site = builder.site("train.py", 5, "main", "y = logits + Variable(noise)", text=text)
    builder.refusal(RefusalKind.DEVICE, "RuntimeError", "no", operator="aten::add.Tensor", start_ns=0, site=site)
    assert only(builder.close()).fix == (
        "`logits.is_cuda` in line 3 is False on mps: write `logits.is_cuda or logits.is_mps` there, and "
        "`.to(logits.device)` for `.cuda()` below it."
    )


@pytest.mark.parametrize(
    ("detail", "fix"),
    [
        (
            {"name": "self.scale", "expression": "torch.ones(3)"},
            "Move `self.scale` to the device of the others: `.to(device)`. "
            "In a module make it a buffer (`register_buffer`), which the module's `.to()` moves.",
        ),
        (
            {"name": "self.scale", "expression": "nn.Parameter(torch.ones(3))"},
            "Move `self.scale` to the device of the others: `.to(device)`.",
        ),
        (
            {"name": "self.scale", "expression": "torch.ones(3)", "kept": "buffer"},
            "It is a buffer of its module: move the module to mps before this line.",
        ),
        (
            {"name": "x", "expression": "torch.Tensor([1.0])", "default_device": "mps"},
            "The default device does not reach `torch.Tensor`. Move it before this line: `x = x.to(device)`.",
        ),
        (
            {"name": "batch['x']", "expression": "torch.from_numpy(array)", "default_device": "mps"},
            "The default device does not reach `torch.from_numpy`. "
            "Move the tensor to the device of the others: `.to(device)`.",
        ),
        (
            {
                "name": "self.weight",
                "expression": "Parameter(Tensor(4))",
                "kept": "parameter",
                "default_device": "mps",
            },
            "The default device does not reach `Tensor`. "
            "It is a parameter of its module: move the module to mps before this line.",
        ),
        (
            {"name": "w[0]", "expression": "nn.Parameter(torch.FloatTensor(4).fill_(1))", "default_device": "mps"},
            "The default device does not reach `torch.FloatTensor`. "
            "Move the tensor to the device of the others: `.to(device)`.",
        ),
        (
            {"name": "x", "expression": "torch.ones(Tensor(3).shape)", "default_device": "mps"},
            "Move it before this line: `x = x.to(device)`.",
        ),
        (
            {"name": "x", "expression": "torch.Tensor([1.0])"},
            "Move it before this line: `x = x.to(device)`.",
        ),
        ({"name": "model.fc.weight"}, "Move `model.fc.weight` to the device of the others: `.to(device)`."),
        (
            {"name": "second", "caller": "test_it.py:9"},
            "Move it to the device of the others before the call at test_it.py:9.",
        ),
    ],
)
def test_how_to_move_a_tensor(detail: dict[str, str], fix: str) -> None:
    """MPS401: an attribute is moved where it is or kept by the module, what goes into a package before it goes in."""
    assert only(refused(RefusalKind.DEVICE, "RuntimeError", "no", "aten::mm", **detail)).fix == fix


@pytest.mark.parametrize(
    ("suite", "own"),
    [({"own": ["tests", "monai"]}, True), ({"own": ["nnunet"]}, False), ({}, False)],
)
def test_a_package_of_ones_own(suite: dict[str, object], own: bool) -> None:
    """The line of a package that the suite's project makes is the one to change, also where it is installed."""
    builder = RecordingBuilder(meta={**META, "suite": suite})
    builder.refusal(
        RefusalKind.FLOAT64, "TypeError", "no", operator="aten::_to_copy", start_ns=0,
        site=builder.site("/v/site-packages/monai/losses.py", 7, "loss", "x = x.double()"),
        detail={"caller": "test_losses.py:119"},
    )  # fmt: skip
    finding = only(builder.close())
    call = "The line is in the package monai: change the call at test_losses.py:119. "
    assert (finding.caller, finding.fix.startswith(call)) == ("test_losses.py:119", not own)


def test_generator_on_the_wrong_device() -> None:
    """MPS402: a CPU generator for a random operator on mps."""
    text = "Expected a 'mps' device type for generator but found 'cpu'"
    finding = only(refused(RefusalKind.GENERATOR, "RuntimeError", text, "aten::normal_"))
    assert (finding.id, finding.what) == ("MPS402", f"`aten::normal_` raised RuntimeError: {text}")
    assert finding.fix == RULES["MPS402"].fix


@pytest.mark.parametrize(
    ("source", "default", "hidden"),
    [
        ("for x in DataLoader(rows, 4, shuffle=True):", {"default_device": "mps"}, True),
        ("for x in DataLoader(rows, 4, shuffle=True):", {}, False),
        ("x = torch.rand(3, generator=draws)", {"default_device": "mps"}, False),
        ("x = torch.rand(3, **on(torch.Generator()))", {"default_device": "mps"}, False),
    ],
)
def test_generator_that_torch_made(source: str, default: dict[str, str], hidden: bool) -> None:
    """MPS402: a loader that shuffles has a CPU generator of its own, and draws on the default device."""
    text = "Expected a 'mps:0' generator device but found 'cpu'"
    finding = only(refused(RefusalKind.GENERATOR, "RuntimeError", text, "aten::randperm", source=source, **default))
    own = (
        'The default device is mps, and torch made a CPU generator: pass `generator=torch.Generator(device="mps")` to '
        "the `DataLoader`, sampler or `random_split`."
    )
    assert finding.fix == (own if hidden else RULES["MPS402"].fix)


# wrong results


def test_distributed_operator() -> None:
    """MPS104: a collective is refused on MPS."""
    finding = only(refused(RefusalKind.DISTRIBUTED, "NotImplementedError", "The distributed operator", "c10d::send"))
    assert finding.id == "MPS104"
    assert finding.what == "`c10d::send` raised NotImplementedError: The distributed operator"


def test_a_bad_index_names_the_call_and_the_wait() -> None:
    """MPS106 stands at the call with the bad index and names the line at which the exception came."""
    recording = refused(
        RefusalKind.INDEX, "AcceleratorError", "index 7", "aten::index.Tensor", origin=(25, "loss.item()")
    )
    finding = only(recording)
    assert (finding.id, finding.site.line) == ("MPS106", 12)
    assert finding.what == (
        "`aten::index.Tensor` reported: index 7; AcceleratorError was raised at train.py:25, the next wait."
    )


def test_a_bad_index_that_no_exception_told_of() -> None:
    """MPS106 also tells of an error that was lost behind another one, or that nothing waited for."""
    finding = only(refused(RefusalKind.INDEX, "AcceleratorError", "index 8", "aten::index.Tensor"))
    assert finding.what == (
        "`aten::index.Tensor` reported: index 8; no exception was raised for it: another error came first, or "
        "nothing waited."
    )


def test_which_rules_are_about_a_call_that_raised() -> None:
    """A suite that expects a test to fail expects these; a wait or a warning is none of them."""
    assert sorted(name for name, rule in RULES.items() if rule.refusal) == [
        "MPS101", "MPS104", "MPS105", "MPS106", "MPS107", "MPS301", "MPS302", "MPS303", "MPS304",
        "MPS401", "MPS402", "MPS407", "MPS410", "MPS501", "MPS504",
    ]  # fmt: skip
    text = "The operator 'aten::heaviside.out' is not currently implemented for the MPS device."
    assert is_refusal(only(refused(RefusalKind.MISSING, "NotImplementedError", text, "aten::heaviside.out")))
