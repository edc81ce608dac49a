"""Do the tests notice faults? `python -m tests.mutants cost --sample 50` plants some, one after another.

cosmic-ray plants them in a copy of the working tree. Of all mutants of a package a seeded sample is run, each against
the package's own fast tests; what survives is printed as a diff.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    *("compare", "cost", "findings", "fix", "forecast", "numerics", "plan", "record", "runs", "rules", "verify"),
)
"""Those whose tests, in the folder of their name, are quick."""
UNREAD = "BitOr"
"""Mutants of `|`: nearly all of them are in annotations, which nobody evaluates."""
SECONDS = 300.0
"""After these a mutant counts as killed: it does not end."""


def copy(folder: Path) -> None:
    """The working tree: tracked files, and new ones that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def keep_core(folder: Path, environment: dict[str, str]) -> None:
    """Have the copy use the native core of the unchanged tree, which is built here if there is none yet.

    Rules are written into headers of the core, so each of their mutants would build one, for minutes. The tables that
    the core is given when it starts are the mutant's; what stands in its headers only the tests of Python see.
    """
    ask = "from anymps.device._build import build; print(build().parent.name)"
    command = [sys.executable, "-c", ask]
    key = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    with (folder / "src/anymps/device/_build.py").open("a", encoding="utf-8") as file:
        file.write(f"\n\ndef _key(*_: object) -> str:\n    return {key!r}\n")


def config(package: str) -> str:
    """What cosmic-ray is to do. The first failure settles a mutant."""
    words = f"{sys.executable} -m pytest -x -q -p no:cacheprovider -m 'not integration and not slow' tests/{package}"
    return (
        f'[cosmic-ray]\nmodule-path = "src/anymps/{package}"\ntimeout = {SECONDS}\nexcluded-modules = []\n'
        f'test-command = "{words}"\n[cosmic-ray.distributor]\nname = "local"\n'
    )


def keep_sample(session: Path, size: int, seed: int) -> int:
    """Take all but a sample out of a session; the number of all."""
    with closing(sqlite3.connect(session)) as database, database:
        query = "SELECT job_id, operator_name FROM mutation_specs ORDER BY module_path, operator_name, occurrence"
        rows = database.execute(f"{query}, operator_args").fetchall()
        jobs = [job for job, operator in rows if UNREAD not in operator]
        kept = set(random.Random(seed).sample(jobs, min(size, len(jobs))))
        gone = [(job,) for job, _ in rows if job not in kept]
        for table in ("mutation_specs", "work_items"):
            database.executemany(f"DELETE FROM {table} WHERE job_id = ?", gone)
    return len(jobs)


def results(session: Path) -> Iterator[tuple[str, str, str]]:
    """Outcome, place and diff of each mutant that was run."""
    query = (
        "SELECT test_outcome, module_path, start_pos_row, operator_name, diff FROM work_results "
        "JOIN mutation_specs USING (job_id) ORDER BY module_path, start_pos_row"
    )
    with closing(sqlite3.connect(session)) as database:
        for outcome, module, row, operator, diff in database.execute(query):
            yield str(outcome).rpartition(".")[2].lower(), f"{module}:{row} {operator}", diff or ""


def main(words: list[str]) -> int:
    """Run a sample, print the survivors and the share that was killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("package", choices=PACKAGES)
    parser.add_argument("--sample", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(folder)
        (folder / "mutants.toml").write_text(config(asked.package), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        if asked.package == "rules":
            keep_core(folder, environment)

        def cosmic_ray(*arguments: str) -> None:
            command = [sys.executable, "-m", "cosmic_ray.cli", *arguments]
            subprocess.run(command, cwd=folder, env=environment, check=True)

        # Modules without the mutant need not be compiled anew each time; what changed is seen by its content.
        compiled = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "src"]
        subprocess.run(compiled, cwd=folder, check=True)
        cosmic_ray("init", "mutants.toml", "mutants.sqlite")
        total = keep_sample(folder / "mutants.sqlite", asked.sample, asked.seed)
        cosmic_ray("baseline", "mutants.toml")  # without a mutant the tests pass
        print(f"==> {asked.sample} of {total} mutants of {asked.package}, seed {asked.seed}", flush=True)
        cosmic_ray("exec", "mutants.toml", "mutants.sqlite")
        found = list(results(folder / "mutants.sqlite"))
    survived = [(place, diff) for outcome, place, diff in found if outcome == "survived"]
    for place, diff in survived:
        print(f"\n--- survived: {place}\n{diff}")
    print(f"\n{asked.package}: {len(found) - len(survived)} of {len(found)} mutants killed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
