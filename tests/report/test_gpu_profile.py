"""GPU time by line, from the table of torch's own profiler."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from anymps.commands import main
from anymps.findings import Story, read_operations
from anymps.record import Recording, RecordingBuilder, RecordingWriter
from anymps.report import render_terminal, report_pieces
from recordings import META

# As tinygrad issue 1167 shows it, in the columns of MPSProfiler.mm; a kernel's row by the same file.
LOG = """\
BlitCopySync: CPU:Float[4096, 4096] --> MPS:Float[4096, 4096] (len=64.00 MB)
aten::add_out_mps::f32[4096,4096]:i64[Scalar]:f32[4096,4096] (id=G1, run=1)
 sum                             4096x 4096    4.50 ms (    3.73 GFLOPS    14.91 GB/s) in torch

--------------- MPS Operations Profiling: 2 graphs, 2 kernels ----------------
  ID  | #Runs | Mean KRNL(ms) | Mean GPU(ms) | Total GPU(ms) | Operation Name
------------------------------------------------------------------------------
  G2      1          0.020          4.000           4.000      aten::sum_out_mps:0,1::f32[4096,4096]:0:4::f32[Scalar]:
  G1      3          0.031          1.000           3.000      aten::add_out_mps::f32[4096,4096]:i64[Scalar]
  K1      1          0.010          0.500           0.500      add_dense_float_float:MPS:Float[8]:MPS:Float[8]
  K2      1          0.010          0.500           0.500      philox:MPS:Float[8]
"""
SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "report-1.json"


def recorded(path: Path | None = None) -> Recording:
    """Two lines that add, one of them small tensors, too, and one that sums."""
    builder = RecordingBuilder(RecordingWriter(path, META) if path is not None else None, META)
    first, second, third = (builder.site("train.py", number, "main", "...") for number in (3, 4, 5))
    large, small = "float32[4096, 4096]", "float32[8]"
    calls = (
        *2 * [("aten::add.Tensor", first, large)],
        ("aten::add.Tensor", second, large),
        ("aten::add_.Tensor", second, small),
        ("aten::sum", third, large),
        ("aten::addmm", third, large),
    )
    for start, (name, site, size) in enumerate(calls):
        builder.entry(name, start_ns=start, duration_ns=1, site=site, inputs=[size], outputs=[size])
    return builder.close()


def test_the_rows_of_the_table() -> None:
    """Other lines of a log are passed over."""
    rows = [(row.name.partition(":f32")[0], row.runs, row.gpu_ns) for row in read_operations(LOG)]
    assert rows[:2] == [("aten::sum_out_mps:0,1:", 1, 4_000_000), ("aten::add_out_mps:", 3, 3_000_000)]
    assert len(rows) == 4
    assert read_operations(LOG.partition("---")[0]) == ()


def test_time_goes_to_the_lines_of_the_operator_with_these_sizes() -> None:
    """`add` is no `addmm`; in-place calls are its calls; what nothing called is named."""
    report = render_terminal(Story.of(recorded(), read_operations(LOG)), ())
    _, _, table = report.partition("GPU time by line, measured by torch on the Mac")
    lines = [" ".join(line.split()) for line in table.splitlines()[1:] if line.strip()]
    assert " ".join(lines).startswith(
        "The GPU computed for 8.00 ms. Calls of the same operator and sizes share it. "
        "500 us of it belong to no recorded call: philox."
    )
    assert [line for line in lines if line.startswith("train.py")][:3] == [
        "train.py:5 4.00 ms 50 % sum",
        "train.py:3 2.00 ms 25 % add",
        "train.py:4 1.50 ms 19 % add",
    ]


def test_the_json_form_has_it_where_a_log_is_given() -> None:
    """By the schema."""
    with_log = json.loads("".join(report_pieces("json", Story.of(recorded(), read_operations(LOG)), ())))
    jsonschema.validate(with_log, json.loads(SCHEMA.read_text()))
    assert [line["gpu_ns"] for line in with_log["gpu_profile"]["lines"]] == [4_000_000, 2_000_000, 1_500_000]
    assert "gpu_profile" not in json.loads("".join(report_pieces("json", Story.of(recorded()), ())))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "mac.log",
            "mac.log has no table of operations: run the script on a Mac with PYTORCH_MPS_LOG_PROFILE_INFO=16, and "
            "keep what it prints on stderr",
        ),
        ("none.log", "none.log cannot be read: No such file or directory"),
    ],
)
def test_a_log_without_a_table(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says how to make one."""
    monkeypatch.chdir(tmp_path)
    recorded(tmp_path / "run.anymps").close()
    Path("mac.log").write_text("step 1\n")
    assert main(["report", "run.anymps", "--gpu-log", name]) == 2
    assert capsys.readouterr().err == f"anymps: {said}\n"
