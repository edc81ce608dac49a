"""Rules about graph breaks and recompilations on hand-made recordings: words and limits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from anymps.findings import Severity, find
from anymps.record import Phase, Recording, RecordingBuilder
from rule_loops import only

STEP = 1_000_000
ITEM = "Unsupported Tensor.item() call with capture_scalar_outputs=False"
BRANCH = "Detected data-dependent branching (e.g. `if my_tensor.sum() > 0:`). Dynamo does not support tracing it."


def compiled(*marks: tuple[str, dict[str, object]], runs_in: int = 10, steps: int = 10) -> Recording:
    """Ten steps that call a compiled model, in some of them at the line of the call, and marks in the first one."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0+cpu", "mac": "M3 Pro 18GB"})
    line = builder.site("net.py", 7, "forward", "if x.sum() > 0:")
    call = builder.site("train.py", 20, "main", "loss = model(x)")
    for number, (what, facts) in enumerate(marks):
        builder.note(what, start_ns=1 + number, site=line, other=call, **facts)
    for step in range(steps):
        start = step * STEP + 100
        site = call if step < runs_in else 0
        builder.entry("metal::generated_kernel_0", start_ns=start, phase=Phase.FORWARD, site=site)
        builder.entry("aten::mm", start_ns=start + 1, phase=Phase.BACKWARD)
        builder.end_step((step + 1) * STEP)
    return builder.close()


def broken(
    kind: str = "Data-dependent branching", said: str = BRANCH, *, skipped: bool = False
) -> tuple[str, dict[str, object]]:
    """The mark of a graph break."""
    return "graph_break", {"kind": kind, "explanation": said, "skipped": skipped}


def again(*guards: str, limit: str = "", within: str = "") -> list[tuple[str, dict[str, object]]]:
    """The marks of recompilations; the last one reaches the limit, if there is one."""
    last = len(guards) - 1
    return [
        ("recompiled", {"guard": guard, "limit": limit if number == last else "", "within": within})
        for number, guard in enumerate(guards)
    ]


def told(recording: Recording) -> list[tuple[str, str, str, str]]:
    """The findings: id, severity, what and fix."""
    return [(finding.id, finding.severity.label, finding.what, finding.fix) for finding in find(recording)]


def test_a_graph_break_in_every_step_is_a_warning() -> None:
    """MPS833 names the line, how often, Dynamo's reason, and the line that called."""
    finding = only(compiled(broken()))
    assert (finding.id, finding.severity, finding.count, finding.per_step) == ("MPS833", Severity.WARNING, 10, 1)
    assert (finding.site.file, finding.site.line) == ("net.py", 7)
    assert [(site.file, site.line) for site in finding.related_sites] == [("train.py", 20)]
    assert finding.related_as == "called at"
    assert finding.what == (
        "torch.compile breaks the graph of `forward` here in 10 of 10 steps. "
        'Dynamo says: "Detected data-dependent branching (e.g. `if my_tensor.sum() > 0:`)."'
    )
    assert finding.fix == (
        "Choose with `torch.where` instead of an `if`, or test before the compiled function is called."
    )


def test_a_graph_break_outside_of_the_loop_is_worth_knowing() -> None:
    """MPS833 is no warning where the line runs in few steps."""
    finding = only(compiled(broken(), runs_in=1))
    assert (finding.severity, finding.count, finding.per_step) == (Severity.INFO, 1, 0)
    assert finding.what.startswith("torch.compile breaks the graph of `forward` here. Dynamo says: ")


def test_a_function_that_cannot_go_on_runs_uncompiled() -> None:
    """MPS833 says so; without an explanation of Dynamo's it quotes the kind."""
    assert only(compiled(broken(ITEM, "", skipped=True))).what == (
        "torch.compile cannot continue after this line and runs all of `forward` uncompiled in 10 of 10 steps. "
        'Dynamo says: "Unsupported Tensor.item() call with capture_scalar_outputs=False."'
    )


@pytest.mark.parametrize(
    ("kind", "said", "fix"),
    [
        (ITEM, "Dynamo does not support tracing `Tensor.item()`.", "Keep the value a tensor in the compiled function"),
        ("Failed to trace builtin operator", "Dynamo does not know `print` with ['str']", "Take the output out of"),
        ("logging.Logger method not supported for non-export cases", "", "Take the output out of"),
        ("Dynamic shape operator", "Operator `aten.nonzero.default`'s output shape depends on", "Keep the size: zero"),
        ("Attempted to call function marked as skipped", "Dynamo ... builtin `time.time.`", "Read the clock outside"),
        ("Call to a time function", "", "Read the clock outside"),
        ("Unsupported method call", "", "Move this line's work out of the compiled function."),
    ],
)
def test_the_fix_follows_from_the_reason(kind: str, said: str, fix: str) -> None:
    """MPS833: each kind of break has its own way out."""
    assert only(compiled(broken(kind, said))).fix.startswith(fix)


def test_a_break_in_a_package_is_told_at_the_users_line() -> None:
    """MPS833 names the call, and the package's line as the place of the break."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0+cpu", "mac": "M3 Pro 18GB"})
    library = builder.site("/opt/lib/python3.11/site-packages/models/net.py", 7, "forward", "x.item()")
    call = builder.site("train.py", 20, "main", "y = model(x)")
    builder.note("graph_break", start_ns=1, site=library, other=call, **broken()[1])
    for number in range(12):
        builder.entry("metal::generated_kernel_0", start_ns=2 + number, site=call)
    finding = only(builder.close())
    assert (finding.site.file, finding.related_as, finding.severity) == ("train.py", "broken at", Severity.WARNING)
    assert [site.line for site in finding.related_sites] == [7]
    assert finding.what.startswith("torch.compile breaks the graph of `forward` here. Dynamo says: ")


def test_a_function_that_is_compiled_again_and_again() -> None:
    """MPS834 counts the compilations and names the guard that failed last."""
    finding = only(compiled(*again("self.n == 0", "self.n == 1", "self.n == 2")))
    assert (finding.id, finding.severity, finding.count, finding.site.line) == ("MPS834", Severity.WARNING, 3, 7)
    assert finding.what == "`forward` was compiled 4 times. The guard that failed last: `self.n == 2`."
    assert finding.fix == "Keep `self.n` out of the compiled function, or make it a buffer, a tensor of the module."


def test_the_limit_of_recompilations() -> None:
    """MPS835 says that the rest ran uncompiled; MPS834 is silent then."""
    guards = [f"number == {number}.0" for number in range(8)]
    assert told(compiled(*again(*guards, limit="recompile_limit"))) == [
        (
            "MPS835",
            "warning",
            "`forward` was compiled 8 times, then ran uncompiled: `torch._dynamo.config.recompile_limit` was reached. "
            "The guard that failed last: `number == 7.0`.",
            "Pass `number` as a tensor, `torch.tensor(number)`: torch.compile recompiles for each Python number.",
        )
    ]


@pytest.mark.parametrize(
    ("guard", "fix"),
    [
        ("tensor 'x' size mismatch at index 0. expected 3, actual 4", "Keep the sizes: pad batches, or give the Data"),
        ("2 <= x.size()[0]", "Keep the sizes: pad batches, or give the Data"),
        ("self.param_groups[0]['lr'] == 0.001", "Make the learning rate a tensor when you make the optimizer"),
        ("___check_type_id(x, 94)", "Keep the value that the guard checks the same in every call."),
    ],
)
def test_the_fix_follows_from_the_guard(guard: str, fix: str) -> None:
    """MPS834: each kind of guard has its own way out."""
    assert only(compiled(*again(*[guard] * 3))).fix.startswith(fix)


@pytest.mark.parametrize(
    "guards",
    [
        ["tensor 'x' size mismatch at index 0. expected 32, actual 7", "2 <= x.size()[0]"],
        ["GLOBAL_STATE changed: grad_mode ", "self.training == 1", "x.size()[0] == 3"],
    ],
)
def test_a_few_recompilations_are_normal(guards: Sequence[str]) -> None:
    """A last batch, a batch of one, an evaluation: no finding."""
    assert told(compiled(*again(*guards))) == []


def test_a_compiled_optimizer_is_named_by_its_function() -> None:
    """MPS834 at the user's line, with the name of torch's function that was compiled."""
    guards = ["self.param_groups[0]['lr'] == 0.001"] * 3
    assert only(compiled(*again(*guards, within="step"))).what.startswith("`step` was compiled 4 times.")
