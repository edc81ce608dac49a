"""`pytest --mps` and the processes that tests start: those that start afresh have the device, as on a Mac."""

from __future__ import annotations

import multiprocessing

import pytest

from gate import Gate, gate, loaded

__all__ = ["gate", "loaded"]  # fixtures

pytest_plugins = ["pytester"]

AFRESH = [method for method in multiprocessing.get_all_start_methods() if method != "fork"]


@pytest.mark.parametrize(
    ("methods", "workers", "plugins"),
    [(AFRESH, (), ""), (["spawn"], ("-n", "1"), "xdist.plugin,")],
    ids=["alone", "xdist"],
)
def test_processes_that_start_afresh_have_the_device(
    gate: Gate, methods: list[str], workers: tuple[str, ...], plugins: str
) -> None:
    """A test's processes compute on mps, and so do theirs. That counts as use, so the session passes."""
    if plugins:
        pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    gate.write(
        test_it=f"""\
            import multiprocessing, sys
            import pytest

            def compute(answers):
                import torch
                answers.put(torch.full((2,), 1.5, device="mps").sum().item())

            def start(method, answers):
                child = multiprocessing.get_context(method).Process(target=compute, args=(answers,))
                child.start()
                child.join()
                sys.exit(child.exitcode)

            @pytest.mark.parametrize("method", {methods})
            def test_child(method):
                context = multiprocessing.get_context(method)
                answers = context.Queue()
                child = context.Process(target=start, args=(method, answers))
                child.start()
                child.join()
                assert child.exitcode == 0
                assert answers.get() == 3

            def test_method():
                assert multiprocessing.get_start_method() == {multiprocessing.get_start_method()!r}
        """
    )
    result = gate.run_alone(*workers, plugins=f"{plugins}anymps.pytest_plugin")
    result.assert_outcomes(passed=len(methods) + 1)
    assert result.ret == 0
