"""The tree in the docstring of baton.errors is the tree of the classes."""

import inspect

import pytest

from baton import errors

CLASSES = [item for _, item in inspect.getmembers(errors, inspect.isclass)]


def drawn():
    """(name, parent) of each line of the drawing."""
    path = []
    for line in errors.__doc__.splitlines():
        word = line.lstrip("│├└─ \u00a0").split(" ")[0]
        if hasattr(errors, word):
            depth = (len(line) - len(line.lstrip("│├└─ \u00a0"))) // 4
            path = [*path[:depth], word]
            yield word, path[-2] if depth else "Exception"


def test_the_drawing_is_the_tree():
    assert dict(drawn()) == {item.__name__: item.__base__.__name__ for item in CLASSES}


def test_siblings_are_drawn_in_the_order_of_the_code():
    assert [name for name, _ in drawn()] == [
        item.__name__ for item in sorted(CLASSES, key=lambda item: inspect.getsourcelines(item)[1])
    ]


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_is_one_of_ours_says_what_it_means_and_carries_its_message(error):
    assert issubclass(error, errors.BatonError)
    assert error.__doc__
    assert len(error.__bases__) == 1
    assert str(error("what; the cure")) == "what; the cure"
