"""Which lines of a changed file a run came to."""

from __future__ import annotations

from pathlib import Path

from processes import run_python

MODULE = "def used(x):\n    if x > 1:\n        return 2\n    return 1\n\n\ndef unused():\n    return 3\n"


def test_lines_that_ran(tmp_path: Path) -> None:
    """In watched files alone, in functions and threads too, through a link as well."""
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "other.py").write_text(MODULE)
    (tmp_path / "link").symlink_to(tmp_path)
    code = f"""
        import sys, threading
        from anymps.fix._proof import ReachedLines
        path = {str(tmp_path / "module.py")!r}
        lines = ReachedLines([path, "/nowhere/other.py"])
        lines.watch()
        sys.path.insert(0, {str(tmp_path / "link")!r})
        import module, other
        other.used(1)
        thread = threading.Thread(target=module.used, args=(1,))
        thread.start()
        thread.join()
        print(sorted(line for file, line in lines.found if line), {{file for file, _ in lines.found}} == {{path}})
    """
    assert run_python(code).lines == ["[1, 2, 4, 7] True"]


def test_without_files_nothing_is_watched() -> None:
    """A run without changes is as fast as ever."""
    code = """
        import sys
        from anymps.fix._proof import ReachedLines
        ReachedLines([]).watch()
        print(sys.gettrace(), sys.version_info < (3, 12) or sys.monitoring.get_tool(3))
    """
    (line,) = run_python(code).lines
    assert line in ("None True", "None None")
