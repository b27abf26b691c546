"""The lists of the project file keep up with the tree."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "baton"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def there(*names):
    """The modules of these that exist, as import-linter would name them."""
    paths = {name: SRC.joinpath(*name.split(".")) for name in names}
    return {f"baton.{n}" for n, p in paths.items() if p.with_suffix(".py").exists() or (p / "__init__.py").exists()}


def contract(word):
    return next((found for found in CONTRACTS if word in found["name"]), {})


@pytest.mark.parametrize(
    ("word", "field", "modules"),
    [
        ("pure", "source_modules", there("lifecycle", "protocol", "guards", "routing", "board.tags")),
        ("base modules", "source_modules", there("flow")),
        ("facade", "source_modules", there("cli", "server", "board")),
        ("concrete stores", "protected_modules", there("stores.sqlite", "stores.postgres")),
        ("steps", "containers", there("flow")),
    ],
)
def test_import_contracts_name_every_module_that_they_are_about(word, field, modules):
    assert modules <= set(contract(word).get(field, ())), f"add it to the contract in pyproject.toml: {modules}"


def test_every_dependency_is_pinned():
    pins = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    assert {name.split(">=")[0] for name in asked} <= pins


@pytest.mark.parametrize("page", ["AGENTS.md", "CONTRIBUTING.md", "README.md", "docs/explanation/architecture.md"])
def test_paths_that_a_page_names_are_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:src|tests|docs|script|benchmarks|examples|\.ci)/[\w./-]*)", text))
    assert {path for path in named if "NAME" not in path and not (ROOT / path).exists()} == set()


def test_the_map_names_every_part_of_the_tree():
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    parts = {path.name + "/" * path.is_dir() for path in SRC.glob("[!_]*") if path.suffix in {"", ".py"}}
    assert {part for part in parts if part not in text} == set()
