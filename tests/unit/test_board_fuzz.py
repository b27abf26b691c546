"""Mutated files and hostile text, by the program that attacks a million of them (benchmarks/tags.py --full)."""

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("attack", Path(__file__).parents[2] / "benchmarks" / "tags.py")
program = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(program)


def test_mutated_files_are_read_and_edited():
    done = program.attack(1500, seed=1)
    assert all(number > 1000 for number in done.values()), done


def by_text(data, old, new):
    """As one would do it with sed: all that looks like the tag, on the Tags line and off it."""
    word = b"".join(b"#" + name.encode() for name in new)
    return data.replace(b"#" + old[0].name.encode(), word) if old else data


def first_of_all(data, old, new):
    """As one would do it without knowing what is code: the first that looks like the tag."""
    word = b"".join(b"#" + name.encode() for name in new)
    return data.replace(b"#" + old[0].name.encode(), word, 1) if old else data


@pytest.mark.parametrize("naive", [by_text, first_of_all])
def test_the_attack_finds_what_is_wrong_with_a_naive_editor(naive):
    with pytest.raises(AssertionError):
        program.attack(5000, seed=1, replaced=naive)


def quadratic(data):
    return [data.count(b"\n", 0, at) for at in range(0, len(data), 8)]


@pytest.mark.parametrize("name", program.FLOODS)
def test_hostile_text_takes_linear_time(name):
    """A busy machine may disturb one measurement, not three."""
    ratios = []
    for _ in range(3):
        ratios.append(program.growth(name, 8192)["ratio"])
        if ratios[-1] <= 1.5:
            return
    pytest.fail(f"a byte takes {ratios} times as long when the text is four times as long")


def test_the_measure_finds_what_is_not_linear():
    assert program.growth("#", 8192, quadratic)["ratio"] > 1.5
