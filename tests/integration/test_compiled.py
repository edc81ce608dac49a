"""`torch.compile` with its default backend: Inductor's own Metal kernels, compiled and run here."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from anymps.record import Recording
from processes import Result, run_command, run_python

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ON = "from anymps.device import enable; enable('M2 16GB', require='virtual', quiet=True); import torch\n"


def compiled(code: str, folder: Path, **env: str) -> Result:
    """Runs Python on the device; what Inductor writes goes into the folder."""
    return run_python(ON + textwrap.dedent(code), {"TORCHINDUCTOR_CACHE_DIR": str(folder), **env})


TEXTS = """
        nn.Embedding(50, 32),
        nn.TransformerEncoderLayer(32, 4, 128, 0.0, "gelu", batch_first=True, norm_first=True),
        nn.Linear(32, 50),
    )
    x, y = torch.randint(0, 50, (4, 16)), torch.randint(0, 50, (4, 16))
"""
PICTURES = """
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3),
        nn.GroupNorm(4, 16), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )
    x, y = torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))
"""


@pytest.mark.parametrize("model", [TEXTS, PICTURES], ids=["texts", "pictures"])
def test_a_compiled_model_trains_as_the_plain_one(model: str, tmp_path: Path) -> None:
    """Forward and backward are compiled, and the losses of both trainings agree."""
    code = f"""
    import copy
    from torch import nn
    torch.manual_seed(0)
    plain = nn.Sequential({model}
    plain, x, y = plain.to("mps"), x.to("mps"), y.to("mps")
    compiled = copy.deepcopy(plain)
    for model, run in ((plain, plain), (compiled, torch.compile(compiled))):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(run(x).flatten(0, -2), y.flatten())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(*losses)
    """
    plain, fast = (list(map(float, line.split())) for line in compiled(code, tmp_path).lines[-2:])
    assert fast == pytest.approx(plain, rel=1e-4)
    assert plain[-1] < plain[0]
    sources = [text for file in tmp_path.rglob("*.py") if "async_compile.metal" in (text := file.read_text("utf-8"))]
    assert sum(text.count("kernel void") for text in sources) > 4


def test_half_types_reductions_and_integers(tmp_path: Path) -> None:
    """Each result is that of the operators one by one, within the last digits of the type."""
    code = """
        import torch.nn.functional as F
        torch.manual_seed(0)
        def same(function, *given, **tolerance):
            torch._dynamo.reset()
            for fast, plain in zip(torch.compile(function)(*given), function(*given)):
                torch.testing.assert_close(fast, plain, **tolerance)
        wide, ints = torch.randn(64, 1500, device="mps"), torch.arange(-50, 50, device="mps")
        same(lambda x: (x.var(-1), x.argmax(-1), x.std(), x.softmax(-1), x.amax(0)), wide, rtol=1e-4, atol=1e-5)
        same(lambda x: (x // 3, x % 5, x << 2, x & 7, x.bool(), x.to(torch.uint8)), ints)
        for dtype, tolerance in ((torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
            small = wide[:, :65].to(dtype)
            same(lambda x: (F.gelu(x * x), (x + 1).relu().mean(-1)), small, rtol=tolerance, atol=tolerance)
        print("same")
    """
    assert compiled(code, tmp_path).lines[-1] == "same"


def test_a_new_size_does_not_compile_again(tmp_path: Path) -> None:
    """With `dynamic=True` one graph, and one set of kernels, serves every size."""
    code = """
        from torch._dynamo.utils import counters
        fast = torch.compile(lambda x: (x * 2 + 1).softmax(-1).sum(), dynamic=True)
        for n in (10, 33, 700, 2000):
            x = torch.randn(n, n, device="mps")
            torch.testing.assert_close(fast(x), (x * 2 + 1).softmax(-1).sum(), rtol=1e-4, atol=1e-3)
        print(counters["stats"]["unique_graphs"])
    """
    assert compiled(code, tmp_path).lines[-1] == "1"


def test_an_index_out_of_range_is_told_at_the_next_wait(tmp_path: Path) -> None:
    """The kernel writes it into its error buffer, and the text is Inductor's."""
    code = """
        fast = torch.compile(lambda table, index: table[index] * 2)
        fast(torch.randn(5, 3, device="mps"), torch.tensor([1, 9], device="mps"))
        print("called")
        try:
            torch.mps.synchronize()
        except Exception as error:
            print(type(error).__name__, str(error).splitlines()[0])
    """
    assert compiled(code, tmp_path).lines[-2:] == ["called", "AcceleratorError Index 9 out of range [0, 5)"]


def test_what_is_compiled_stands_at_the_lines_that_it_computes(tmp_path: Path) -> None:
    """A kernel counts at the first. The second process has all in Inductor's cache, though the lines have moved."""
    script = """
        import torch
        @torch.compile
        def step(x):
            y = torch.relu(x) + 1
            y = torch.sigmoid(y)
            z = y @ y.T
            return z.sum()
        x = torch.ones(4, 8, device="mps", requires_grad=True)
        step(x).backward()
    """
    env = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    for above in ("", "\n\n"):
        (tmp_path / "step.py").write_text(above + textwrap.dedent(script).lstrip(), encoding="utf-8")
        result = run_command("-m", "anymps", "run", "--record", "run.mpsrec", "step.py", cwd=tmp_path, env=env)
        assert result.status == 0, result.err
        recording = Recording.open(tmp_path / "run.mpsrec")
        counted = {line.source.strip(): line for line in recording.lines()}
        first = counted["y = torch.relu(x) + 1"]
        assert first.line == 4 + len(above)
        assert [line for _, line in first.fused] == [5 + len(above), 6 + len(above)]
        product = counted["z = y @ y.T"]  # no kernel of Inductor's, but a call of its own
        assert product.line == 6 + len(above)
        assert "def step(x):" not in counted
        assert (first.on_mps, product.on_mps) == (2, 5)  # with the backward, and the tensors that they write to
        kernels = {use.name.partition(".")[0] for use in recording.operators() if use.name.startswith("metal::")}
        assert kernels <= {"metal::generated_kernel_0", "metal::generated_kernel_1"}


def test_the_gradient_of_a_table_of_positions(tmp_path: Path) -> None:
    """MPS682: it is wrong by the size of the batch, as on a Mac, and told. Read without an index it is right."""
    code = """
        import anymps
        from anymps.findings import find
        import torch.nn.functional as F
        torch.manual_seed(0)
        table = torch.nn.Embedding(16, 32, device="mps")
        x = torch.randn(24, 16, 32, device="mps")
        def embedded(x):
            return (F.layer_norm(x + table(torch.arange(16, device="mps")), (32,)) ** 3).sum()
        def sliced(x):
            return (F.layer_norm(x + table.weight[:16], (32,)) ** 3).sum()
        def gradient(function):
            table.weight.grad = None
            function(x).backward()
            return table.weight.grad
        right = gradient(embedded)
        for function in (embedded, sliced):
            with anymps.record() as capture:
                wrong = gradient(torch.compile(function))
            found = [(it.id, it.site.source[:34]) for it in find(capture.recording)]
            print(round((wrong / right).median().item(), 3), found)
    """
    (tmp_path / "positions.py").write_text(ON + textwrap.dedent(code), encoding="utf-8")
    env = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    for _ in range(2):  # the second time Inductor has the kernels in its cache
        result = run_command(str(tmp_path / "positions.py"), env=env)
        assert result.lines[-2:] == ["24.0 [('MPS682', 'return (F.layer_norm(x + table(tor')]", "1.0 []"]
