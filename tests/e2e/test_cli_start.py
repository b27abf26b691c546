"""What the verbs that agents call all the time may import, and that they are what is installed."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = {
    "baton",
    "baton.board",
    *(f"baton.board.{name}" for name in ("actor", "exchange", "files", "heads", "log", "markdown", "moves", "root")),
    *(f"baton.board.{name}" for name in ("tagging", "tags")),
    *(f"baton.{name}" for name in ("cli", "cli.fast", "clock", "config", "digest", "errors", "stores")),
    "baton.board.tree",
    "baton.stores.holder",
}
PYTHONS = {"__future__", "_ctypes", "_sha2", "_sha256", "errno", "fcntl"}
PROGRAM = """
import sys
before = set(sys.modules)
from baton.cli import main
code = main(sys.argv[1:])
print(code, *sorted(set(sys.modules) - before), sep="\\n")
"""


def imported(folder, *words):
    (folder / ".baton").mkdir(exist_ok=True)
    (folder / "a.md").write_text("# a\n**Tags**: #delegated-fix\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=folder, env={"XDG_STATE_HOME": str(folder / "state"), "BATON_USER": "ana"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    at = lines.index("0")
    return set(lines[at + 1 :])


def test_a_swap_imports_these_modules_and_no_other(tmp_path):
    found = imported(tmp_path, "tag", "swap", "a.md", "#delegated-fix", "#claimed-fix")
    assert {"baton.board.files", "baton.board.log"} <= found
    assert found - OURS - PYTHONS == set()


def test_find_imports_little_more(tmp_path):
    found = imported(tmp_path, "tag", "find", "#delegated-*", ".")
    assert found - OURS - PYTHONS - {"baton.board.find", "baton.board.index", "baton.board.tree"} == set()


def test_what_is_installed_imports_nothing_by_itself():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
        "shared-scripts"
    ]
    assert set(scripts.values()) == {"baton", "engine"}
    for source, name in scripts.items():
        text = (ROOT / source).read_text()
        lines = [line.strip() for line in text.splitlines()[1:] if line and not line.startswith("if __name__")]
        assert text.startswith("#!python\n")
        assert lines == ["from baton.cli import program", "program()"]
        installed = Path(sys.executable).with_name(name).read_text()
        assert installed.split("\n")[1:] == text.split("\n")[1:]
