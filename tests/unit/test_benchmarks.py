"""Every benchmark can be asked for and is told of; what it costs to import is held to."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = sorted((ROOT / "benchmarks").glob("[!_]*.py"))


def run(path, *words):
    return subprocess.run([sys.executable, path, *words], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_is_quick_or_full_and_stands_on_the_page(path):
    said = run(path, "--help")
    assert all(option in said for option in ("--quick", "--full", "--json"))
    page = (ROOT / "docs" / "explanation" / "performance.md").read_text(encoding="utf-8")
    assert f"benchmarks/{path.name}" in page


def test_importing_is_quick_and_brings_little_along(tmp_path):
    """150 ms on this kind of machine; where it is busy, as a ratio to what Python brings along."""
    run(ROOT / "benchmarks" / "start.py", "--quick", "--json", str(tmp_path / "start.json"))
    found = {one["what"]: one for one in json.loads((tmp_path / "start.json").read_text())["results"]}
    assert found["import baton"]["distributions"] == []
    assert "msgspec" in found["from baton import Relay"]["distributions"]
    for one in found.values():
        assert one["cpu_ms"] <= 150 or one["cpu_to_library"] <= 4.5, one
        assert len(one["distributions"] or []) <= 3, one


def test_script_bench_passes_the_size_on(tmp_path):
    """In a copy whose one benchmark says what it was told."""
    for folder in ("script", "benchmarks", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "script" / "bench").write_bytes((ROOT / "script" / "bench").read_bytes())
    (tmp_path / "script" / "bench").chmod(0o755)
    (tmp_path / "script" / "setup").write_text("#!/bin/sh\n")
    (tmp_path / "script" / "setup").chmod(0o755)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "benchmarks" / "one.py").write_text("import sys; print(sys.argv[1:])")
    for words, told in (((), []), (("--full",), ["--full"]), (("--quick", "one"), ["--quick"])):
        said = run_script(tmp_path / "script" / "bench", *words)
        assert said == f"== one\n{[*told, '--json', 'benchmarks/results/one.json']}\n"


def run_script(path, *words):
    return subprocess.run([path, *words], capture_output=True, text=True, check=True).stdout
