"""A service that only ingests, again and again, until it is killed."""

from __future__ import annotations

from pathlib import Path

from tests.fixtures.sites import settings_for
from tuner.store import open_store
from tuner.workflows.ingest import ingest
from tuner.workflows.site import open_site


def ingest_for_ever(folder: str, engine_url: str, database_url: str) -> None:
    settings = settings_for(Path(folder), engine_url, database_url=database_url)
    store = open_store(database_url)
    with open_site(settings, store) as site:
        while True:
            ingest(site, page_records=40)
