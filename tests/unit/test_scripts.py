"""The checks of the project catch what they are there to catch."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def script(name, *args):
    done = subprocess.run(
        [sys.executable, ROOT / "script" / name, *map(str, args)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def plant(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("big.py", "x = 1\n" * 401, "401 lines"),
        ("long.py", "def f():\n" + "    x = 1\n" * 41, "f: 41 statements"),
        ("wide.py", "class A:\n    def f(self, a, b, c, *, d, e, f, g): ...\n", "f: 7 parameters"),
        (
            "deep.py",
            "class A: ...\nclass B(A): ...\nclass C(B): ...\nclass D(C): ...\n",
            "D: inherits over 3",
        ),
        ("utils.py", "", "says nothing"),
    ],
)
def test_budgets_name_what_is_too_big(tmp_path, name, text, complaint):
    code, output = script("budgets", plant(tmp_path, {name: text}))
    assert code == 1
    assert complaint in output


def test_what_is_open_does_not_read_like_a_failure():
    code, output = script("conformance")
    assert code == 0
    assert re.search(r"^conformance: \d+ requirements closed and checked, \d+ not built yet$", output, re.MULTILINE)


def test_budgets_allow_what_just_fits(tmp_path):
    fits = 'def f(a, b, c, d, e, g):\n    """Doc."""\n' + "    x = 1\n" * 40
    assert script("budgets", plant(tmp_path, {"fits.py": fits})) == (0, "")


def test_budgets_count_the_public_names(tmp_path):
    many = f"__all__ = {[f'name{i}' for i in range(41)]}\n"
    code, output = script("budgets", plant(tmp_path, {"baton/__init__.py": many}))
    assert (code, output) == (1, "baton.__all__: 41 names (at most 40)\n")


CODE = """
import contextlib

def double(x):
    "Docstring."
    return 2 * x

async def later(x):
    return 2 * x

def count(n):
    for i in range(n):
        yield i

async def stream(n):
    for i in range(n):
        yield i

def short(x): return 2 * x

class Adder:
    def add(self, x):
        return x + 1
"""
TESTS = """
import asyncio
import planted.code as c

def test_double(): assert c.double(2) == 4
def test_later(): assert asyncio.run(c.later(2)) == 4
def test_count(): assert list(c.count(2)) == [0, 1]
def test_short(): assert c.short(2) == 4
def test_add(): assert c.Adder().add(1) == 2

def test_stream():
    async def collect():
        return [i async for i in c.stream(2)]
    assert asyncio.run(collect()) == [0, 1]

def test_that_cannot_fail(): c.double(2)
"""


def planted(tmp_path, *rows):
    table = "\n".join(f"| {key} | x | {by} | {proof} | {state} |" for key, by, proof, state in rows)
    return plant(
        tmp_path,
        {
            "docs/conformance.md": table,
            "pyproject.toml": "[tool.pytest]\n",
            "src/planted/__init__.py": "",
            "src/planted/code.py": CODE,
            "tests/test_code.py": TESTS,
        },
    )


def test_sabotage_accepts_tests_that_fail_without_the_code(tmp_path):
    names = {"double": "double", "stream": "stream", "short": "short", "Adder.add": "add", "count": "count"}
    by = ", ".join(f"`planted.code:{name}`" for name in [*names, "later"])
    proof = ", ".join(f"`tests/test_code.py::test_{name}`" for name in [*names.values(), "later"])
    code, output = script("conformance", "--root", planted(tmp_path, ("P1", by, proof, "closed")), "--sabotage", "P1")
    assert code == 0, output
    assert output.count("caught") == 6


def test_sabotage_catches_a_test_that_cannot_fail(tmp_path):
    row = ("P1", "`planted.code:double`", "`tests/test_code.py::test_that_cannot_fail`", "closed")
    code, output = script("conformance", "--root", planted(tmp_path, row), "--sabotage", "all")
    assert code == 1
    assert "FAIL  P1   planted.code:double: PASSES although it does nothing" in output


def test_conformance_names_every_fault_of_the_table(tmp_path):
    test = "`tests/test_code.py::test_double`"
    root = planted(
        tmp_path,
        ("P1", "`planted.code:gone`", test, "closed"),
        ("P2", "`planted.code:double`", "`tests/test_code.py::test_gone`", "closed"),
        ("P3", "–", "–", "closed"),
        ("P4", "–", "–", "done"),
        ("P5", "–", "–", "open"),
        ("P5", "–", "–", "open"),
        ("P99", "–", "–", "open"),
    )
    code, output = script("conformance", "--root", root)
    assert code == 1
    for fault in (
        "P1: nothing defines planted.code:gone",
        "P2: no test tests/test_code.py::test_gone",
        "P3: closed without naming",
        "P4: state is 'done'",
        "P5: 2 rows",
        "P6: no row",
        "P99: not a requirement",
    ):
        assert fault in output


PROOF = """
import pytest

@pytest.mark.proof("no-such-tool")
def test_with_a_tool(): pass

@pytest.mark.proof("sh")
def test_with_another(): pass
"""


@pytest.mark.parametrize("workers", [["-n2"], ["-pno:xdist"]])
@pytest.mark.parametrize(
    ("required", "summary", "line"),
    [
        ("0", "1 passed", "not proved here: test_proof.py::test_with_a_tool (needs no-such-tool)"),
        ("1", "1 passed, 1 error", "not proved: no-such-tool is missing or does not work here"),
    ],
)
def test_a_proof_without_its_tool_is_named_or_fails(tmp_path, workers, required, summary, line):
    project = '[tool.pytest]\nmarkers = ["proof(tool): needs a tool"]\n'
    plant(tmp_path, {"test_proof.py": PROOF, "pyproject.toml": project})
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *workers],
        cwd=tmp_path,
        env={**os.environ, "BATON_REQUIRE_PROOFS": required, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert summary in done.stdout
    assert line in done.stdout
