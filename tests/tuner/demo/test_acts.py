from pathlib import Path

import pytest

from tuner.demo.acts import limited
from tuner.errors import Interrupted
from tuner.settings import load_settings
from tuner.store import migrating
from tuner.workflows.site import open_site


def test_long_workflows_end_when_their_time_is_over_and_others_go_on(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path)
    migrating.upgrade(settings.database_url)
    with open_site(settings) as site:
        short = limited(site, 0.05)
        short.raise_if_stopping()
        assert short.stopping.wait(60)
        with pytest.raises(Interrupted):
            short.raise_if_stopping()
        site.raise_if_stopping()


def test_a_stopping_demo_ends_them_at_once(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path)
    migrating.upgrade(settings.database_url)
    with open_site(settings) as site:
        long = limited(site, 60)
        site.stopping.set()
        assert long.stopping.wait(60)
        with pytest.raises(Interrupted):
            long.raise_if_stopping()
