"""Files in words that are the same on every machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anymps._manifest import Changes, read_manifest, updated
from anymps._paths import is_library, package_of, portable_path, portable_text, project_path, whole_path
from anymps.findings import read_settings
from anymps.pytest_plugin._baseline import read_baseline
from anymps.pytest_plugin._facts import Facts
from anymps.pytest_plugin._update import reason
from anymps.record import Refusal, RefusalKind, Site, known_as

ROOT = "/home/ann/my suite"
LIBRARY = "/opt/lib/python3.11/site-packages/gpytorch/constraints/constraints.py"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        (f"{ROOT}/src/ops.py", "src/ops.py"),
        (LIBRARY, "gpytorch/constraints/constraints.py"),
        (f"{ROOT}/.venv/lib/python3.12/site-packages/timm/layers/drop.py", "timm/layers/drop.py"),
        ("/usr/lib/python3/dist-packages/six.py", "six.py"),
        ("/a/site-packages/b/site-packages/c/d.py", "c/d.py"),
        ("/usr/lib/python3.10/unittest/case.py", "unittest/case.py"),
        ("/tmp/pytest-of-ann/pytest-12/test_it0/data.pt", ".../test_it0/data.pt"),
        ("/data/train.py", "/data/train.py"),
        ("/home/ann/site-packages", "/home/ann/site-packages"),
        ("cell 3", "cell 3"),
        ("<string>", "<string>"),
    ],
)
def test_files(file: str, name: str) -> None:
    """From the project, a package or Python's own library; an environment in the project is no part of it."""
    assert portable_path(file, ROOT) == name


@pytest.mark.parametrize(
    ("file", "package"),
    [
        (LIBRARY, "gpytorch"),
        ("/usr/lib/python3/dist-packages/six.py", "six"),
        ("/a/site-packages/b/site-packages/c/d.py", "c"),
        (r"C:\Python\Lib\site-packages\timm\layers\drop.py", "timm"),
        ("/home/ann/site-packages", ""),
        ("/home/ann/my-site-packages/train.py", ""),
        (f"{ROOT}/train.py", ""),
        (os.__file__, ""),
        ("cell 3", ""),
    ],
)
def test_packages(file: str, package: str) -> None:
    """The first name behind the innermost folder of packages; Python's own library is none, but no program's either."""
    assert package_of(file) == package
    assert is_library(file) == (bool(package) or file == os.__file__)


def test_a_suite_of_an_installed_package() -> None:
    """A root that lies in `site-packages` itself names its files from there."""
    root = "/opt/lib/python3.11/site-packages/einops"
    assert project_path(f"{root}/tests/test_ops.py", (root,)) == "tests/test_ops.py"


def test_texts() -> None:
    """Paths and addresses in an exception's words; what is no path stays."""
    text = f"cannot load '{LIBRARY}' (/usr/lib/python3.10/json/decoder.py:3) for <Net object at 0x7f3036c8c680>, a/b"
    assert portable_text(text) == (
        "cannot load 'gpytorch/constraints/constraints.py' (json/decoder.py:3) for <Net object at 0x...>, a/b"
    )
    text = "expected 3/4 and 0xff at https://a.org/site-packages/b/c, /dev, and //x"
    assert portable_text(text) == text


def test_reasons_in_a_manifest() -> None:
    """They name files as every machine has them, also in the words of an exception."""
    missing = Refusal(RefusalKind.MISSING, "NotImplementedError", "", "aten::eig", Site(LIBRARY, 7), Site("", 0), {})
    facts = Facts("test_it.py::test_a", "NotImplementedError", refusals=[missing])
    assert reason(facts, ROOT) == "aten::eig has no MPS kernel (gpytorch/constraints/constraints.py)"
    facts = Facts("test_it.py::test_a", "OSError", said=f"no file '{LIBRARY}'\nat 0x7f3036c8c680")
    assert reason(facts, ROOT) == "no file 'gpytorch/constraints/constraints.py'"


def test_older_manifests(tmp_path: Path) -> None:
    """Whole paths of another machine are read, and written, as every machine has them; other comments stay."""
    text = f"# see {LIBRARY}\n# why: aten::eig has no MPS kernel ({LIBRARY})\ntest_it.py::test_a NotImplementedError\n"
    path = tmp_path / "m.txt"
    path.write_text(text)
    why = "aten::eig has no MPS kernel (gpytorch/constraints/constraints.py)"
    assert read_manifest(path).entries["test_it.py::test_a"].why == why
    assert updated(text, Changes({"test_it.py::test_b": "OSError"})).splitlines() == [
        f"# see {LIBRARY}",
        f"# why: {why}",
        "test_it.py::test_a NotImplementedError",
        "test_it.py::test_b OSError",
    ]


def test_baselines(tmp_path: Path) -> None:
    """A line in an environment inside of the suite is known on a machine that has it elsewhere, by older files too."""
    file = ".venv/lib/python3.11/site-packages/gpytorch/kernels/kernel.py"
    path = tmp_path / "b.txt"
    path.write_text(f"item  {file} forward  | x.item()\n")
    site = Site(f"{ROOT}/{file}", 7, "forward", "x.item()")
    elsewhere = Site("/opt/lib/python3.12/site-packages/gpytorch/kernels/kernel.py", 9, "forward", "x.item()")
    known = read_baseline(path).known
    assert known_as("item", site, (ROOT,)) in known
    assert known_as("item", elsewhere, (ROOT,)) in known


def test_a_path_without_dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`..` is taken out where that names the same file: not behind a link to another folder."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    monkeypatch.chdir(tmp_path / "a")
    assert whole_path("../x.xml") == tmp_path / "x.xml"
    assert whole_path(tmp_path / "a" / "b" / ".." / "none" / "x.xml") == tmp_path / "a" / "none" / "x.xml"
    assert str(whole_path(tmp_path / "link" / ".." / "x.xml")) == f"{tmp_path}/link/../x.xml"


def test_settings_of_a_script_beside_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`..` in its path does not make the current folder one above it; a baseline's path has no dots either."""
    for name, key in (("here", 'mac = "M1 8GB"'), ("there", 'baseline = "../known.json"')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyproject.toml").write_text(f"[tool.anymps]\n{key}\n")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    found = read_settings(Path("../there"))
    assert (found.root, found.baseline) == (tmp_path / "there", tmp_path / "known.json")
    assert read_settings(Path("../other")).mac == ""
