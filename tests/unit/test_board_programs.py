"""Which program an agent is: the rows, who may write them, the arguments, the environment of children."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton import config
from baton.board.programs import IN_REPOSITORY, PLACEHOLDERS, command, environment, load, missing
from baton.errors import BatonError, Malformed, NotFound, TooLarge
from baton.processes import PASSED
from baton.protocol.toml import MAX_FILE

VALUES = {"prompt": "/fix the $(login); now", "request": "/r/a b;.md", "skill": "fix"}
MINE = """
[programs.mine]
headless = ["true", "--file", "{request}", "{skill}", "a{1} {}", "$(touch x)"]
environment = ["MY_*", "TOKEN"]
set = { MODE = "quiet" }
"""


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "baton").mkdir(parents=True)
    (tmp_path / "repository" / ".baton").mkdir(parents=True)


def user(tmp_path, text):
    (tmp_path / "config" / "baton" / "clis.toml").write_bytes(text.encode() if isinstance(text, str) else text)


def repository(tmp_path, text):
    (tmp_path / "repository" / IN_REPOSITORY).write_text(text)
    return tmp_path / "repository"


def refused(tmp_path, text, error=Malformed):
    user(tmp_path, text)
    with pytest.raises(error) as caught:
        load()
    assert str(caught.value).isprintable()
    return str(caught.value).removeprefix(f"{tmp_path}/config/baton/")


def test_the_package_knows_three_agents_and_how_each_is_started(tmp_path, monkeypatch):
    found = load()
    agents = {"claude", "codex", "opencode"}
    assert set(found.rows) == agents | {"research"}
    assert found.of("fix").name == "claude"
    for name in agents:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    started = {
        (name, mode): command(found.rows[name], mode, {"prompt": "P"})[1:]
        for name in agents
        for mode in ("interactive", "headless")
    }
    assert started == {
        ("claude", "interactive"): ["P"],
        ("claude", "headless"): ["-p", "P", "--output-format", "json"],
        ("codex", "interactive"): ["P"],
        ("codex", "headless"): ["exec", "--json", "-s", "workspace-write", "P"],
        ("opencode", "interactive"): ["--prompt", "P"],
        ("opencode", "headless"): ["run", "--format", "json", "P"],
    }
    assert not any("danger" in one or "bypass" in one or "yolo" in one for row in started.values() for one in row)


def test_research_is_done_by_the_baton_that_runs_whatever_is_on_the_path(tmp_path, monkeypatch):
    (tmp_path / "baton").write_text("#!/bin/sh\n")
    (tmp_path / "baton").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    row = load().of("research", usual="research")
    argv = command(row, "headless", {"request": "/board/R.md"})
    assert argv == [sys.executable, "-P", "-m", "baton", "research", "/board/R.md"]
    assert missing(row) == ""
    passed = environment(row, {"GEMINI_API_KEY": "g", "OPENAI_API_KEY": "o", "ANTHROPIC_API_KEY": "a", "OPENAI_X": "x"})
    assert passed == {"GEMINI_API_KEY": "g", "OPENAI_API_KEY": "o"}


def test_what_is_usual_counts_less_than_what_the_user_says_of_a_skill(tmp_path):
    user(tmp_path, MINE + '[skills]\nresearch = "mine"\n')
    assert load().of("research", usual="research").name == "mine"
    assert load().of("survey", usual="research").name == "research"


def test_a_placeholder_is_a_whole_argument_and_all_else_stays_as_it_is(tmp_path):
    user(tmp_path, MINE)
    argv = command(load().of("fix", "mine"), "headless", VALUES)
    assert argv[0].endswith("/true")
    assert argv[1:] == ["--file", "/r/a b;.md", "fix", "a{1} {}", "$(touch x)"]


def test_what_a_value_says_is_never_replaced_again_and_never_an_option(tmp_path):
    user(tmp_path, MINE)
    row = load().rows["mine"]
    assert command(row, "headless", {**VALUES, "request": "{skill}"})[2] == "{skill}"
    for odd in ("--yes", "-", "", "a\0b"):
        with pytest.raises(Malformed, match=r"^\{request\}: .* cannot be an argument"):
            command(row, "headless", {**VALUES, "request": odd})
    with pytest.raises(NotFound, match="nothing to put in the place of"):
        command(row, "headless", {"skill": "fix"})
    with pytest.raises(Malformed, match="no placeholder; did you mean request"):
        command(row, "headless", {**VALUES, "reqest": "x"})


def test_the_users_file_wins_over_a_trusted_repository_and_that_over_the_package(tmp_path):
    root = repository(
        tmp_path,
        'default = "theirs"\n[skills]\nfix = "codex"\nloop = "codex"\n[programs.theirs]\nheadless = ["theirs"]\n'
        '[programs.codex]\nheadless = ["codex2"]\n[programs.claude]\nheadless = ["claude2"]\n',
    )
    user(tmp_path, '[skills]\nfix = "claude"\n[programs.claude]\nheadless = ["claude3", "{prompt}"]\n')
    seen = []
    found = load(root, lambda path, data: seen.append((path, data)) or True)
    assert seen == [(root / IN_REPOSITORY, (root / IN_REPOSITORY).read_bytes())]
    assert {name: row.headless[0] for name, row in found.rows.items()} == {
        "claude": "claude3", "codex": "codex2", "opencode": "opencode", "theirs": "theirs",
        "research": "baton",
    }  # fmt: skip
    assert found.rows["claude"].interactive == ()  # a row is replaced as a whole
    assert [found.of(skill).name for skill in ("fix", "loop", "chores")] == ["claude", "codex", "theirs"]
    assert found.of("fix", "opencode").name == "opencode"
    assert found.notes == ()


def test_a_repository_that_nobody_trusts_changes_nothing_and_is_told_of(tmp_path):
    root = repository(tmp_path, '[programs.claude]\nheadless = ["touch", "/tmp/owned"]\n')
    found = load(root)
    assert found.rows == load().rows
    assert found.notes == (f"{root / IN_REPOSITORY} counts only after `baton trust`; until then no row of it is used",)
    repository(tmp_path, "broken = = ")  # it is not even read
    assert load(root).rows == load().rows


def test_children_get_the_allow_list_and_what_the_row_names(tmp_path):
    user(tmp_path, MINE)
    own = {
        "PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "XDG_STATE_HOME": "/s", "MY_KEY": "k", "TOKEN": "t", "TOKENS": "x",
        "AWS_SECRET_ACCESS_KEY": "s", "SSH_AUTH_SOCK": "/a", "BATON_USER": "root", "LD_PRELOAD": "/e", "MODE": "loud",
        "PYTHONPATH": "/p", "GIT_SSH_COMMAND": "x", "TMUX": "/t",
    }  # fmt: skip
    assert environment(load().rows["mine"], own, {"BATON_CLAIM": "a:1"}) == {
        "PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "XDG_STATE_HOME": "/s", "MY_KEY": "k", "TOKEN": "t",
        "MODE": "quiet", "BATON_CLAIM": "a:1",
    }  # fmt: skip
    assert not any(name in {"*", "BATON_*"} for name in PASSED)


def test_a_missing_program_says_which_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    row = load().rows["codex"]
    said = (
        "codex: not found on PATH; it is the program of codex (clis.toml); install the Codex CLI, correct"
        " [programs.codex] in your clis.toml, or name another"
    )
    assert missing(row) == said
    with pytest.raises(NotFound) as caught:
        command(row, "headless", VALUES)
    assert str(caught.value) == said
    with pytest.raises(NotFound, match=r"no program cloude; did you mean claude\?; or add \[programs.cloude\] to /"):
        load().of("fix", "cloude")
    user(tmp_path, MINE)
    with pytest.raises(NotFound, match=r"mine is only for headless work; add interactive = \[...\] to"):
        command(load().rows["mine"], "interactive", VALUES)


ROW = "[programs.x]\nheadless = ['x']\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = = 1", "clis.toml: not TOML: Invalid value (at line 1, column 5); correct that place"),
        ("[program.x]", "clis.toml: program: did you mean programs?"),
        ("programs = 1", "clis.toml: programs: expected a table, got int; write [programs]"),
        ("[programs]\nx = 1", "clis.toml: programs.x: expected a table; write [programs.x]"),
        ('[programs."a b"]\nheadless = ["x"]', "clis.toml: programs.'a b': name it with letters"),
        ("[programs.x]\ncure = 'x'", "clis.toml: programs.x: neither interactive nor headless; write at least one"),
        ("[programs.x]\nheadles = ['x']", "clis.toml: programs.x.headles: did you mean headless?"),
        ("[programs.x]\nheadless = 'x'", "clis.toml: programs.x: Expected `array`, got `str` - at `$.headless`; lists"),
        ("[programs.x]\nheadless = [1]", "clis.toml: programs.x: Expected `str`, got `int` - at `$.headless[0]`"),
        ("[programs.x]\nheadless = ['']", "clis.toml: programs.x.headless[0]: '': the program itself is named"),
        ("[programs.x]\nheadless = ['{prompt}']", "clis.toml: programs.x.headless[0]: '{prompt}': the program itself"),
        ("[programs.x]\nheadless = ['x', '{promt}']", "headless[1]: {promt} is no placeholder; did you mean prompt?"),
        ("[programs.x]\nheadless = ['x', '-f={request}']", "headless[1]: '-f={request}': a placeholder is a whole"),
        (
            "[programs.x]\nheadless = ['sh', '-c', 'do {prompt}']",
            "headless[2]: 'do {prompt}': a placeholder is a whole",
        ),
        ('[programs.x]\nheadless = ["x", "a\\u0000"]', "headless[1]: a NUL"),
        (
            ROW + "environment = ['A=B']",
            "clis.toml: programs.x.environment: 'A=B' is no name of a variable; write NAME",
        ),
        (ROW + "environment = ['*']", "programs.x.environment: '*' is no name of a variable; write NAME, or PREFIX*"),
        (ROW + "set = { 'A*' = '1' }", "programs.x.set: 'A*' is no name of a variable; write NAME"),
        (ROW + "set = { A = 1 }", "clis.toml: programs.x: Expected `str`, got `int`"),
        (ROW + 'cure = "\\u001b[2J"', "clis.toml: programs.x: control characters; remove them"),
        (ROW + "name = 'y'", "clis.toml: programs.x.name: "),
        (
            "default = 'y'\n" + ROW,
            "clis.toml: default: no table [programs.y]; known: claude, codex, opencode, research, x",
        ),
        ("default = 1", 'clis.toml: default: expected the name of a program, got int; write "…"'),
        ("[skills]\nfix = 'cod'", "clis.toml: skills.fix: no table [programs.cod]; did you mean codex?"),
        (b"\xff", "clis.toml: byte 0 is not UTF-8; save the file as UTF-8"),
    ],
)
def test_a_fault_names_file_row_key_and_cure(tmp_path, text, said):
    assert said in refused(tmp_path, text)


def test_what_is_huge_or_no_file_is_refused(tmp_path):
    assert "larger than" in refused(tmp_path, "#" * (MAX_FILE + 1), TooLarge)
    assert "at most 100" in refused(
        tmp_path, "".join(f"[programs.x{n}]\nheadless=['x']\n" for n in range(101)), TooLarge
    )
    assert "at most 100" in refused(tmp_path, f"[programs.x]\nheadless = {['x'] * 101}", TooLarge)
    assert "too long" in refused(tmp_path, f"x = {'[' * 20000}")
    path = tmp_path / "config" / "baton" / "clis.toml"
    path.unlink()
    path.mkdir()
    with pytest.raises(Malformed, match="not a regular file"):
        load()
    path.rmdir()
    path.symlink_to(tmp_path / "gone")
    with pytest.raises(NotFound):  # a link to nowhere is not the same as no file
        load()


TOML = st.lists(
    st.sampled_from([*ROW.splitlines(), *MINE.splitlines(), "default = 'x'", "[skills]", "fix = 'x'", "x = {", "]"])
    | st.text(st.sampled_from("[]{}=\"'\\.#ab1\n\t\x00é "), max_size=15),
    max_size=12,
).map("\n".join)


@settings(max_examples=300, deadline=None)
@given(TOML)
def test_any_text_gives_checked_rows_or_one_line(text):
    folder = config.config_dir()
    (folder / "clis.toml").write_text(text)
    fault, rows = "", {}
    try:
        rows = load().rows
    except BatonError as error:
        fault = str(error)
    assert fault.isprintable()
    for row in rows.values():
        for argument in (*row.interactive, *row.headless):
            assert not any(f"{{{word}}}" in argument and f"{{{word}}}" != argument for word in PLACEHOLDERS)


def test_baton_starts_without_the_reader_of_toml():
    program = "import sys, baton.board.programs; print('tomllib' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "False"


def test_as_many_agents_as_cores_unless_a_number_is_given():
    assert config.max_agents() >= 1
    assert config.max_agents(0) == 0
    assert config.max_agents(7) == 7
