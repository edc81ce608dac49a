"""Packages of AOTInductor: a model is exported, compiled ahead of time and run from the file, as on a Mac."""

from __future__ import annotations

import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from anymps._text import size
from anymps.record import Recording
from processes import run_anymps, run_python

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ON = "from anymps.device import enable; enable('M2 16GB', require='virtual', quiet=True); import torch\n"
MODEL = """
    from torch import nn
    torch.manual_seed(0)
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.pictures = nn.Sequential(
                nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3),
                nn.GroupNorm(4, 16), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
            )
            self.texts = nn.Sequential(
                nn.Embedding(50, 32),
                nn.TransformerEncoderLayer(32, 4, 128, 0.0, "gelu", batch_first=True, norm_first=True),
                nn.Linear(32, 50),
            )
            self.recurrent = nn.LSTM(10, 12, batch_first=True)
        def forward(self, pictures, words):
            x = self.pictures(pictures)
            largest, where = x.topk(3)
            repeated = torch.stack([x, x.cumsum(1)], 1)
            return x, self.texts(words), largest, where, self.recurrent(repeated)[0], x.masked_select(x > 0)
    model = Model().to("mps").eval()
    given = torch.randn(8, 3, 16, 16).to("mps"), torch.randint(0, 50, (4, 16)).to("mps")
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled model, from a process of its own."""
    folder = tmp_path_factory.mktemp("package")
    code = f"""{MODEL}
    with torch.no_grad():
        program = torch.export.export(model, given)
        torch._inductor.aoti_compile_and_package(program, package_path={str(folder / "model.pt2")!r})
    """
    assert run_python(ON + textwrap.dedent(code), {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}).lines == []
    return folder / "model.pt2"


def test_another_process_gets_the_results_of_the_model(package: Path) -> None:
    """Kernels, operators and constants are in the file; other constants may take their place."""
    code = f"""{MODEL}
    compiled = torch._inductor.aoti_load_package({str(package)!r})
    def same():
        with torch.no_grad():
            for mine, plain in zip(compiled(*given), model(*given), strict=True):
                assert mine.device == plain.device == torch.device("mps:0")
                torch.testing.assert_close(mine, plain, rtol=1e-3, atol=1e-5)
    same()
    known = compiled.get_constant_fqns()  # without the smallest, whose values are in the code
    weights = {{name: tensor * 1.25 for name, tensor in model.state_dict().items() if name in known}}
    model.load_state_dict(weights, strict=False)
    compiled.load_constants(weights, check_full_update=True)
    same()
    print(len(known))
    """
    assert int(run_python(ON + textwrap.dedent(code)).lines[-1]) > 20


def test_several_threads_run_one_package(package: Path) -> None:
    """One waits for the other, and shaders are compiled meanwhile."""
    code = f"""
    from concurrent.futures import ThreadPoolExecutor
    compiled = torch._inductor.aoti_load_package({str(package)!r})
    given = torch.ones(8, 3, 16, 16, device="mps"), torch.ones(4, 16, dtype=torch.int64, device="mps")
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda _: compiled(*given), range(9)))
    for one in results:
        for mine, first in zip(one, results[0], strict=True):
            assert torch.equal(mine, first)
    print("same")
    """
    assert run_python(ON + textwrap.dedent(code)).lines == ["same"]


def test_a_run_is_recorded(package: Path, tmp_path: Path) -> None:
    """Kernels and operators stand at the line that calls the package, as often as they ran."""
    script = f"""
    import torch
    compiled = torch._inductor.aoti_load_package({str(package)!r})
    pictures, words = torch.ones(8, 3, 16, 16, device="mps"), torch.ones(4, 16, dtype=torch.int64, device="mps")
    for _ in range(3):
        compiled(pictures, words)
    """
    (tmp_path / "serve.py").write_text(textwrap.dedent(script).lstrip(), encoding="utf-8")
    result = run_anymps("run", "--mac", "M2 16GB", "--record", "run.mpsrec", "serve.py", cwd=tmp_path)
    assert result.status == 0, result.err
    recording = Recording.open(tmp_path / "run.mpsrec")
    used = {use.name: use.count for use in recording.operators()}
    assert (used["aten::convolution"], used["aten::topk"], used["aten::masked_select"]) == (6, 3, 3)
    kernels = sum(count for name, count in used.items() if name.startswith("metal::generated_kernel"))
    assert kernels >= 3 * 10
    assert kernels % 3 == 0
    lines = {line.source.strip(): line for line in recording.lines()}
    assert lines["compiled(pictures, words)"].on_mps >= kernels
    (first,) = recording.noted("package")
    assert (first.facts["name"], first.facts["bytes"]) == ("model.pt2", package.stat().st_size)
    assert first.occurrence.site.line == 5
    told = " ".join(run_anymps("report", "run.mpsrec", cwd=tmp_path).out.split())
    assert f"The first call of model.pt2 ({size(package.stat().st_size)}, serve.py:5) took " in told


def test_a_package_for_another_device_or_system(package: Path, tmp_path: Path) -> None:
    """Torch's own errors, as on a Mac, or one line of ours; nothing is loaded."""

    def changed(end: str, change: Callable[[bytes], bytes]) -> str:
        """A copy of the package with other contents of the files whose names end so."""
        copy = tmp_path / f"changed{end}.pt2"
        with zipfile.ZipFile(package) as whole, zipfile.ZipFile(copy, "w") as other:
            for name in whole.namelist():
                content = whole.read(name)
                other.writestr(name, change(content) if name.endswith(end) else content)
        return str(copy)

    again = "make it again here with torch._inductor.aoti_compile_and_package"
    for_cuda = changed("_metadata.json", lambda content: content.replace(b'_KEY": "mps"', b'_KEY": "cuda"'))
    for_macos = changed(".so", lambda content: b"\xcf\xfa\xed\xfe" + content[4:])
    half = changed(".wrapper.so", lambda content: content[: len(content) // 2])
    cases = [
        (for_cuda, -1, "Torch not compiled with CUDA enabled"),
        (str(package), 0, "Incorrect device passed to aoti_runner_mps"),
        (for_macos, -1, f"anymps: the compiled program is one for macOS, which this machine cannot load: {again}"),
        (half, -1, f"anymps: the compiled program is not whole: {again}"),
    ]
    for path, device, text in cases:
        with pytest.raises((RuntimeError, AssertionError)) as raised:
            torch._inductor.aoti_load_package(path, device_index=device)
        assert str(raised.value) == text
