"""`pytest --mps` over a small library with planted faults: what turns red, at which line, and in which words."""

from __future__ import annotations

import os

import pytest
import torch

import anymps
from gate import Gate, gate, loaded, section

__all__ = ["gate", "loaded"]  # fixtures

pytest_plugins = ["pytester"]

LIBRARY = """\
    import torch

    def eig(x):
        return torch.linalg.eig(x)

    def load(values):
        return torch.tensor(values, dtype=torch.float64).to("mps")

    def shifted(x):
        return x + torch.ones(3)

    def total(x):
        total = 0.0
        for _ in range(20):
            total += x.sum().item()
        return total

    def look_up(table):
        return torch.embedding_renorm_(table, torch.tensor([0], device="mps"), 1.0, 2.0)
"""

SUITE = """\
    import pytest, torch, library

    def ones(*shape):
        return torch.ones(*shape, device="mps")

    def test_fine():
        torch.testing.assert_close(ones(3) + 1, 2 * ones(3))

    def test_operator():
        library.eig(ones(2, 2))

    def test_float64():
        library.load([1.0])

    def test_mismatch():
        library.shifted(ones(3))

    @pytest.mark.mps_limit_waits(3)
    def test_waits():
        library.total(ones(3))
"""

_LONE = 'def test_{number}():\n    torch.ones(3, device="mps") + torch.ones(3)\n'
FIX_EIG = "Set PYTORCH_ENABLE_MPS_FALLBACK=1 before `import torch` to run it on the CPU, which is slower."
FLOAT64 = (
    "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
    "Please use float32 instead."
)
FIX_FLOAT64 = 'Write `torch.tensor(values, dtype=torch.float32).to("mps")`.'
MISMATCH = "Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!"


def test_planted_faults(gate: Gate) -> None:
    """A missing operator, a float64, two devices and a wait in a loop are red, each with the library's line."""
    gate.write(library=LIBRARY, test_it=SUITE)
    result = gate.run()
    result.assert_outcomes(passed=1, failed=4)
    assert section(result) == [
        "Operators without an MPS kernel:",
        "  aten::linalg_eig",
        f"  fix: {FIX_EIG}",
        "    once  library.py:4  | return torch.linalg.eig(x)",
        "      in test_it.py::test_operator",
        "Refused by MPS:",
        f"  RuntimeError: {MISMATCH}",
        "  fix: Move the tensor to the device of the others: `.to(device)`.",
        "    once  library.py:10  | return x + torch.ones(3)",
        "      in test_it.py::test_mismatch",
        f"  TypeError: {FLOAT64}",
        f"  fix: {FIX_FLOAT64}",
        '    once  library.py:7  | return torch.tensor(values, dtype=torch.float64).to("mps")',
        "      in test_it.py::test_float64",
        "Lines that wait for the GPU repeatedly:",
        "  item",
        "    20 times  library.py:15  | total += x.sum().item()",
        "      in test_it.py::test_waits",
    ]
    result.stdout.fnmatch_lines(
        [
            "The host waited 20 times for the GPU, out of a limit of 3:",
            "      20 x item             library.py:15  | total += x.sum().item()",
        ]
    )


def test_a_call_of_cuda_has_its_fix(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that `anymps run` has a fix for has it here, too, and in the annotation; any other is the test's."""
    gate.write(
        test_it="""\
            import torch

            def test_cuda():
                torch.ones(3, device="cuda")

            def test_other():
                assert torch.ones(3, device="mps").sum() == 4
        """
    )
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = gate.run()
    result.assert_outcomes(failed=2)
    fix = 'Write `torch.ones(3, device="mps" if torch.backends.mps.is_available() else "cuda")`.'
    assert section(result)[:5] == [
        "Raised on any Mac:",
        "  AssertionError: Torch not compiled with CUDA enabled",
        f"  fix: {fix}",
        '    once  test_it.py:4  | torch.ones(3, device="cuda")',
        "      in test_it.py::test_cuda",
    ]
    assert [line for line in result.outlines if line.startswith("::error")] == [
        "::error file=test_it.py,line=4,title=AssertionError on MPS::Torch not compiled with CUDA enabled%0A"
        f"{fix}%0AIn 1 test, such as test_it.py::test_cuda"
    ]


def test_an_interrupted_test_has_its_name(gate: Gate) -> None:
    """What a test did before the session was interrupted is the test's, and not what happened between tests."""
    gate.write(
        test_it="""\
            import torch

            def test_ends():
                torch.ones(3, device="mps")

            def test_hangs():
                x = torch.ones(3, device="mps")
                try:
                    x.double()
                except TypeError:
                    raise KeyboardInterrupt
        """
    )
    (gate.path / "src" / "mine").mkdir(parents=True)
    (gate.path / "src" / "mine" / "__init__.py").touch()
    result = gate.run("--mps-recording", "m.anymps")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(passed=1)
    assert section(result)[:5] == [
        "Refused by MPS:",
        f"  TypeError: {FLOAT64}",
        "  fix: Write `x.float()`; what needs double precision is computed on the CPU: `.cpu().double()`.",
        "    once  test_it.py:9  | x.double()",
        "      in test_it.py::test_hangs",
    ]
    suite = anymps.Recording.open(gate.path / "m.anymps").meta["suite"]
    assert suite == {"tests": 2, "failed": 0, "excused": 0, "manifest": "", "expected": [], "own": ["mine"]}


def test_lines_of_installed_packages(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A line of an installed package is told from the package's folder, wherever its environment lies."""
    site = tmp_path_factory.mktemp("environment") / "lib/python3.12/site-packages"
    (site / "timmed").mkdir(parents=True)
    (site / "timmed" / "layers.py").write_text("def total(x):\n    return [y.item() for y in x]\n")
    monkeypatch.syspath_prepend(site)
    gate.write(
        test_it="""\
            import torch
            from timmed.layers import total

            def test_total():
                assert total(torch.ones(20, device="mps"))
        """
    )
    assert section(gate.run()) == [
        "Lines that wait for the GPU repeatedly:",
        "  item",
        "    20 times  timmed/layers.py:2  | return [y.item() for y in x]",
        "      in test_it.py::test_total",
    ]


def test_what_is_left_out(gate: Gate) -> None:
    """Lines of tests that fail as they should are counted, and shown with -v; what a test module reads is not told."""
    gate.write(
        library=LIBRARY,
        test_it="""\
            import pytest, torch, library

            @pytest.mark.mps_fails(raises=NotImplementedError)
            def test_expected():
                library.eig(torch.ones(2, 2, device="mps"))

            def test_other():
                library.shifted(torch.ones(3, device="mps"))

            def test_reads():
                assert [torch.ones(1, device="mps").item() for _ in range(20)]
        """,
    )
    others = [
        "Refused by MPS:",
        f"  RuntimeError: {MISMATCH}",
        "  fix: Move the tensor to the device of the others: `.to(device)`.",
        "    once  library.py:10  | return x + torch.ones(3)",
        "      in test_it.py::test_other",
    ]
    assert section(gate.run()) == [*others, "Left out: 1 line of tests that fail as expected (-v shows it)."]
    assert [line for line in section(gate.run("-v")) if line] == [
        "Operators without an MPS kernel:",
        "  aten::linalg_eig",
        f"  fix: {FIX_EIG}",
        "    once (expected)  library.py:4  | return torch.linalg.eig(x)",
        "      in test_it.py::test_expected",
        *others,
    ]


def test_more_lines_than_are_shown(gate: Gate) -> None:
    """Of one kind ten lines are shown, and all with -v."""
    gate.write(test_it="import torch\n" + "".join(_LONE.format(number=number) for number in range(11)))
    shown = section(gate.run())
    assert (sum("test_it.py:" in line and "once" in line for line in shown), shown[-1]) == (
        10,
        "  and 1 more line (-v shows it)",
    )
    shown = section(gate.run("-v"))
    assert sum("test_it.py:" in line and "once" in line for line in shown) == 11
    assert not shown[-1].startswith("  and ")


def test_header_and_silence(gate: Gate) -> None:
    """The header says what the device is and what is in force; what `pytest.raises` asks for makes no section."""
    gate.write(
        library=LIBRARY,
        test_it="""\
            import pytest, library, torch

            def test_fine():
                assert torch.ones(3, device="mps").sum() == 3

            def test_raises():
                with pytest.raises(TypeError):
                    library.load([1.0])
        """,
    )
    result = gate.run("--mps-fail-on-fallback", "--mps-default-device")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "anymps: VIRTUAL mps device: M3 Pro 18GB, torch *, computed on this machine's CPU; not a real Mac",
            "anymps: fallbacks fail, mps is the default device",
        ]
    )
    assert section(result) == []


def test_a_session_that_never_meets_mps_is_red(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that compute on the CPU alone prove nothing, and the session fails unless that is meant."""
    on_cpu = "import torch\n\ndef test_one():\n    assert torch.ones(3).sum() == 3\n\ndef test_two():\n    pass\n"
    gate.write(test_it=on_cpu)
    strict = "--no-mps-allow-unused"
    result = gate.run(strict)
    result.assert_outcomes(passed=2)
    assert (result.ret, section(result)) == (
        pytest.ExitCode.TESTS_FAILED,
        [
            "None of 2 tests used mps, so this session says nothing about a Mac.",
            "  fix: take the device from torch.accelerator in the tests, or run with --mps-default-device",
            "If that is intended, pass --mps-allow-unused.",
        ],
    )
    meant = gate.run("--mps-allow-unused")
    assert meant.ret == pytest.ExitCode.OK
    assert section(meant) == ["None of 2 tests used mps, so this session says nothing about a Mac."]
    on_mps = gate.run(strict, "--mps-default-device")
    assert (on_mps.ret, section(on_mps)) == (pytest.ExitCode.OK, [])
    assert section(gate.run(strict, "-k", "nothing_of_the_kind")) == []
    assert gate.run(strict, "--setup-plan").ret == pytest.ExitCode.OK
    assert gate.run(strict, "--mps-manifest=m.txt", "--mps-update-manifest").ret == pytest.ExitCode.OK
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    gate.run(strict).stdout.fnmatch_lines(["::error title=mps::None of 2 tests used mps"])
    gate.write(test_it=on_cpu + "\ndef test_three():\n    torch.ones(3, device='mps')\n")
    used = gate.run(strict)
    assert (used.ret, section(used)) == (pytest.ExitCode.OK, [])


def test_fallbacks_fail_unless_marked(gate: Gate) -> None:
    """With --mps-fail-on-fallback an operator on the CPU fails the test, with its line; a mark allows it by name."""
    gate.write(
        library=LIBRARY,
        test_it="""\
            import pytest, torch, library

            def test_unmarked():
                library.look_up(torch.ones(3, 3, device="mps"))

            @pytest.mark.mps_fallback("aten::embedding_renorm_")
            def test_marked():
                library.look_up(torch.ones(3, 3, device="mps"))

            @pytest.mark.mps_fallback("aten::take")
            def test_marked_for_another():
                library.look_up(torch.ones(3, 3, device="mps"))
        """,
    )
    # Always on the CPU, whatever the variable says; so it needs no process of its own.
    result = gate.run("--mps-fail-on-fallback", "-W", "ignore")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*_ test_unmarked _*",
            "1 operator ran on the CPU (--mps-fail-on-fallback):",
            "  aten::embedding_renorm_, once, regardless of PYTORCH_ENABLE_MPS_FALLBACK  library.py:19  | return *",
            'If that is intended, mark the test: @pytest.mark.mps_fallback("aten::embedding_renorm_")',
        ]
    )
    gate.run("-W", "ignore").assert_outcomes(passed=3)


def test_memory_limit(gate: Gate) -> None:
    """A test that adds more than its limit fails with both numbers and the largest results; one within it passes."""
    gate.write(
        test_it="""\
            import pytest, torch

            torch.mps.empty_cache()  # a free buffer of an earlier test may be larger than what is asked for

            @pytest.mark.mps_limit_memory("3 MiB")
            def test_over():
                x = torch.zeros(1024, 512, device="mps")
                y = x + x

            @pytest.mark.mps_limit_memory("4 MiB")
            def test_within():
                x = torch.zeros(1024, 512, device="mps")
                y = x + x
        """
    )
    result = gate.run()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "The test took 4 MiB of the device's memory, out of a limit of 3 MiB. The largest results:",
            "       2 MiB  1 x float32[[]1024, 512[]] of aten::zero_  test_it.py:7  | x = torch.zeros(1024, 512, *",
            "       2 MiB  1 x float32[[]1024, 512[]] of aten::add.Tensor  test_it.py:8  | y = x + x",
        ]
    )


def test_waits_that_do_not_count(gate: Gate) -> None:
    """Copies to the device, and what assertions read, are within a limit of no waits; a read in a helper is not."""
    gate.write(
        test_it="""\
            import unittest
            import pytest, torch

            pytestmark = pytest.mark.mps_limit_waits(0)

            def test_copies():
                x = torch.ones(3).to("mps")
                torch.testing.assert_close(x, torch.ones(3, device="mps"))

            class TestIt(unittest.TestCase):
                def test_assertion(self):
                    self.assertGreater(torch.ones(1, device="mps"), 0)

            def test_read():
                if torch.ones(1, device="mps") > 0:
                    pass
        """
    )
    result = gate.run()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "The host waited once for the GPU, out of a limit of 0:",
            '       1 x item             test_it.py:15  | if torch.ones(1, device="mps") > 0:',
        ]
    )


def test_expected_failures_by_mark(gate: Gate) -> None:
    """`mps_fails` wants this class and these words: anything else, and passing, is red. `mps_skip` gives its reason."""
    gate.write(
        library=LIBRARY,
        test_it="""\
            import pytest, torch, library

            @pytest.mark.mps_fails(raises=NotImplementedError, match="linalg_eig")
            def test_as_marked():
                library.eig(torch.ones(2, 2, device="mps"))

            @pytest.mark.mps_fails(raises=NotImplementedError, match="linalg_qr")
            def test_other_words():
                library.eig(torch.ones(2, 2, device="mps"))

            @pytest.mark.mps_fails(raises=(TypeError, ValueError))
            def test_other_class():
                library.eig(torch.ones(2, 2, device="mps"))

            @pytest.mark.mps_fails(raises=NotImplementedError)
            def test_passes():
                pass

            @pytest.mark.mps_skip("takes an hour")
            def test_skipped():
                assert False
        """,
    )
    result = gate.run("-rs")
    result.assert_outcomes(xfailed=1, failed=3, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*The mark expects NotImplementedError matching 'linalg_qr' in the test itself.",
            "*The mark expects TypeError or ValueError in the test itself.",
            "The test passed, but is marked mps_fails(NotImplementedError): remove the mark.",
            "SKIPPED * mps: takes an hour",
        ]
    )


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        ("mps_limit_waits('x')", "mark mps_limit_waits takes one whole number, not 'x'"),
        ("mps_limit_waits()", "mark mps_limit_waits takes one whole number, not None"),
        ("mps_limit_memory('100')", "mark mps_limit_memory takes a size with its unit, such as \"100 MiB\", not '100'"),
        ("mps_limit_memory(100)", 'mark mps_limit_memory takes a size with its unit, such as "100 MiB", not 100'),
        ("mps_fails()", "mark mps_fails takes an exception class: mps_fails(raises=NotImplementedError, match=None)"),
        (
            "mps_fails(raises=3)",
            "mark mps_fails takes an exception class: mps_fails(raises=NotImplementedError, match=None)",
        ),
        (
            "mps_fallback('take')",
            'mark mps_fallback names operators as the recording does: mps_fallback("aten::take", ...)',
        ),
        ("mps_skip()", 'mark mps_skip needs a reason: mps_skip("...")'),
    ],
)
def test_wrong_marks(gate: Gate, mark: str, text: str) -> None:
    """A mark that makes no sense ends the run in one line, before any test."""
    gate.write(test_it=f"import pytest\n@pytest.mark.{mark}\ndef test_x():\n    pass")
    result = gate.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines == [f"ERROR: test_it.py::test_x: {text}", ""]


def test_blocks(gate: Gate) -> None:
    """`mps_record` gives a block's own recording: its calls, waits and refusals, and not those around it."""
    gate.write(
        library=LIBRARY,
        test_it="""\
            import pytest, torch, library

            def test_block(mps_record, mps_device):
                x = torch.ones(3, device=mps_device)
                x.sum().item()
                with mps_record() as block:
                    y = x.exp()
                    y.sum().item()
                    with pytest.raises(TypeError):
                        library.load([1.0])
                x.tanh()
                recording = block.recording
                assert {use.name for use in recording.operators()} == {
                    "aten::exp", "aten::sum.dim_IntList", "aten::_local_scalar_dense", "aten::empty.memory_format"}
                assert [(wait.count, wait.site.source) for wait in recording.waits()] == [(1, "y.sum().item()")]
                assert [finding.id for finding in block.findings] == ["MPS301"]
                with mps_record() as second:
                    pass
                assert second.recording.operators() == ()
                assert mps_device == torch.device("mps")
        """,
    )
    gate.run().assert_outcomes(passed=1)


def test_default_device(gate: Gate) -> None:
    """With --mps-default-device new tensors are on mps in tests and their fixtures, and nowhere afterwards."""
    gate.write(
        test_it="""\
            import pytest, torch

            @pytest.fixture
            def made():
                return torch.ones(3)

            def test_device(made):
                assert (made.device.type, torch.ones(3).device.type) == ("mps", "mps")
        """
    )
    gate.run("--mps-default-device").assert_outcomes(passed=1)
    gate.run().assert_outcomes(failed=1)
    assert torch.ones(3).device.type == "cpu"


@pytest.mark.parametrize(
    ("arguments", "ini", "text"),
    [
        (["--mps-mac", "M9"], "", "ERROR: --mps: *M9*"),
        (["--mps-mac", "M1 8GB"], "", "ERROR: --mps: the device already acts as M3 Pro 18GB in this process and*"),
        (["--mps-require", "real"], "", "ERROR: --mps: --mps-require real, but the device is virtual"),
        ([], "mps_require = maybe", "ERROR: --mps-require (mps_require) must be real or virtual, not 'maybe'"),
        ([], "mps_fallback = maybe", "ERROR: mps_fallback in the configuration file must be true or false"),
        (
            ["--mps-update-manifest"],
            "",
            "ERROR: --mps-update-manifest needs --mps-manifest FILE",
        ),
        (
            ["--mps-manifest", "none/m.txt", "--mps-update-manifest"],
            "",
            "ERROR: --mps-manifest */none/m.txt cannot be written: there is no directory */none",
        ),
        (
            ["--mps-manifest", "m.txt"],
            "",
            "ERROR: --mps-manifest */m.txt does not exist: write it with --mps-update-manifest",
        ),
        (["--mps-manifest", "."], "", "ERROR: --mps-manifest * cannot be read: *"),
        (
            ["--mps-manifest", "test_it.py"],
            "",
            "ERROR: */test_it.py:1: a line is a test id, a space and an exception's name; *: 'def test_x():'",
        ),
        (
            ["--mps-recording", "none/run"],
            "",
            "ERROR: --mps-recording: */none/run cannot be written: there is no directory */none",
        ),
    ],
)
def test_wrong_values(gate: Gate, arguments: list[str], ini: str, text: str) -> None:
    """A value that makes no sense is one line, exit code 4, and no test runs."""
    gate.write(test_it="def test_x():\n    pass")
    gate.pytester.makeini(f"[pytest]\n{ini}\n")
    result = gate.run(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([text])
    assert "passed" not in result.stdout.str()


def test_options_without_the_device(gate: Gate) -> None:
    """An option of the gate without `--mps` is a mistake, and is said; marks and fixtures then do nothing."""
    gate.write(test_it="import pytest\n@pytest.mark.mps_fails(raises=ValueError)\ndef test_x():\n    pass")
    result = gate.pytester.runpytest_inprocess("-p", "anymps.pytest_plugin", "--mps-mac", "M1 8GB")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines == ["ERROR: --mps-mac needs --mps", ""]
    result = gate.pytester.runpytest_inprocess("-p", "anymps.pytest_plugin", "--strict-markers")
    result.assert_outcomes(passed=1)


def test_annotations_for_github(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under GitHub Actions what is red is annotated at the library's line, the manifest at its own."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(gate.path))
    gate.write(library=LIBRARY, test_it=SUITE)
    gate.manifest.write_text(
        "test_it.py::test_fine AssertionError\ntest_it.py::test_operator NotImplementedError\n"
        "test_it.py::test_waits Failed\n"
    )
    result = gate.run("--mps-manifest", "m.txt")
    assert [line for line in result.outlines if line.startswith("::")] == [
        f"::error file=library.py,line=10,title=RuntimeError on MPS::{MISMATCH}%0A"
        "Move the tensor to the device of the others: `.to(device)`.%0AIn 1 test, such as test_it.py::test_mismatch",
        f"::error file=library.py,line=7,title=TypeError on MPS::{FLOAT64}%0A{FIX_FLOAT64}%0A"
        "In 1 test, such as test_it.py::test_float64",
        "::error file=m.txt,line=1,title=mps manifest::test_it.py::test_fine: passed, expected AssertionError",
    ]


def test_a_wait_in_a_test_that_fails_is_annotated_as_a_warning(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits fail no test by themselves: what is red is the error of the same test."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(gate.path))
    gate.write(
        library="def read(x):\n    return x.item()",
        test_it="""\
            import torch, library
            def test_it():
                assert sum(library.read(torch.ones(1, device="mps")) for _ in range(12)) == 11
        """,
    )
    result = gate.run()
    result.assert_outcomes(failed=1)
    assert [line for line in result.outlines if line.startswith("::")] == [
        "::warning file=library.py,line=2,title=Waits for the GPU::item, 12 times%0AIn 1 test, such as "
        "test_it.py::test_it"
    ]


def test_a_forked_child_is_left_alone(gate: Gate) -> None:
    """A test that forks goes on; what the child does is neither recorded nor judged."""
    gate.write(
        test_it="""\
            import os, torch

            def test_fork():
                child = os.fork()
                if child == 0:
                    os._exit(7)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
                assert torch.ones(3, device="mps").sum() == 3
        """
    )
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    gate.run("-W", "ignore").assert_outcomes(passed=1)
