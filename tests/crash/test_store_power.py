"""Take the power away from a store: what was acknowledged is there, unless nobody asked for that."""

import functools
import importlib.util
from pathlib import Path

import pytest

from baton.testing import power_loss

_spec = importlib.util.spec_from_file_location("store_kills", Path(__file__).with_name("test_store_kills.py"))
kills = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(kills)


def work(directory, acknowledge, durability="power"):
    kills.create_claim_return(directory, acknowledge, durability=durability, rounds=3)


def warm(directory):
    kills.warm(directory)


def kept(directory, acknowledged):
    return kills.kept(directory, acknowledged)


def test_every_image_of_a_power_cut_recovers():
    report = power_loss(work, kept, prepare=warm, images=1000)
    report.assert_clean()
    assert report.images >= 1000
    assert report.lossy > 200
    assert report.acknowledged == 18
    print(f"{report.images} images in {report.seconds:.1f} s, {report.lossy} lossy")


def test_from_the_first_byte():
    report = power_loss(work, kept, images=300, seed=1)
    report.assert_clean()
    assert report.lossy > 50


@pytest.mark.parametrize("fault", ["process", "lies"])
def test_a_missing_sync_is_caught(fault):
    workload = functools.partial(work, durability="process") if fault == "process" else work
    report = power_loss(workload, kept, prepare=warm, images=150, ignore_sync=fault == "lies")
    assert any("lost: " in found.detail for found in report.violations)
