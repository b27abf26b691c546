"""A person saves a file while its tag is changed all the time: no save is lost, and a naive change loses some.

BATON_SAVES=N saves N times instead of 600; the plan asks for 3,000.
"""

import os

import pytest

from baton.board import exchange, files
from baton.testing import saves

COUNT = int(os.environ.get("BATON_SAVES", "600"))
STYLES = [saves.by_rename, saves.in_place, saves.without_truncation]


def without_exchange(path, edit):
    """What happens on a file system that cannot exchange two names."""
    exchange._found.update(dict.fromkeys(("renameat2", "renamex_np")))
    return files.change(path, edit)


@pytest.mark.parametrize("save", STYLES)
def test_no_save_is_lost(save, tmp_path):
    result = saves.saves(str(tmp_path), save, COUNT)
    assert result.saves == COUNT
    assert result.changes > 0  # they met
    assert result.lost == 0
    assert result.kept <= result.reported


@pytest.mark.parametrize("save", [saves.in_place, saves.without_truncation])
def test_no_save_in_place_is_lost_without_exchange(save, tmp_path):
    result = saves.saves(str(tmp_path), save, COUNT // 3, without_exchange)
    assert result.changes > 0
    assert result.lost == 0


@pytest.mark.parametrize("save", STYLES)
def test_a_naive_change_loses_some(save, tmp_path):
    assert saves.saves(str(tmp_path), save, COUNT, saves.naive_change).lost > 0
