"""The commands of the how-to pages run as they are written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "how-to").glob("*.md"))
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
MODULE = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.DOTALL | re.MULTILINE)
OURS = ["hand-over-from-a-shell", "decide-as-a-person", "serve-your-agents", "see-what-happens"]


def test_the_pages_are_there():
    assert set(OURS) <= {page.stem for page in PAGES}


@pytest.mark.parametrize("name", OURS)
def test_a_page_runs(name, tmp_path):
    text = next(page for page in PAGES if page.stem == name).read_text(encoding="utf-8")
    for file, program in MODULE.findall(text):
        (tmp_path / file).write_text(program)
    script = "set -eu\n" + "".join(SHELL.findall(text))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "XDG_STATE_HOME": str(tmp_path / "state")}
    env.pop("BATON_STORE", None)
    argv = ["sh", "-c", script]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if name == "serve-your-agents":
        assert done.stdout.count("refunded customer 42") == 2
