"""A control group's share of CPU time: read as both versions of control groups write it."""

import os

import pytest
from referee import quota

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({"cpu.max": "150000 100000\n"}, (1.5, 0.1)),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, (0.5, 0.1)),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_what_a_group_allows(tmp_path, files, share):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert quota.share(tmp_path) == share
    cpus = len(os.sched_getaffinity(0))
    assert quota.threads(tmp_path) == (cpus if share is None else max(1, min(cpus, round(share[0] + 0.49))))
