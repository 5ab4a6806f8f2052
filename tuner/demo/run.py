"""Entry of the demo: checks its input, opens its folder, runs the show, revokes its token."""

from __future__ import annotations

import asyncio
import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from rich.console import Console

from dashboards.access import Role
from tuner.demo.board import Board
from tuner.demo.errors import InvalidDataDir
from tuner.demo.options import DemoOptions
from tuner.demo.preparing import new_token, prepare_database, revoke_token, sign_in_link
from tuner.demo.show import Show
from tuner.demo.stack import Stack, demo_settings, require_ports
from tuner.demo.summary import DemoSummary, totals_before
from tuner.demo.traffic import read_traffic
from tuner.settings import load_settings
from tuner.workflows.site import open_site

_TOKEN_LIFE = timedelta(days=1)


def run_demo(
    options: DemoOptions, console: Console, config: Path | None = None
) -> DemoSummary | None:
    """Run the demo to its end and print its summary.

    Args:
        options: how it is run.
        console: for everything a person reads.
        config: TOML file with settings; the demo's own overrule it.

    Returns:
        DemoSummary | None: None where it was ended before any traffic.

    Raises:
        InvalidTraffic: a line of the traffic file cannot be played.
        InvalidSettings: a setting is unknown or out of range.
        InvalidDataDir: the folder for facts cannot be used.
        PortInUse: a port is taken.
        ChildFailed: engine or service did not come up or stay up.
    """
    prompts = read_traffic(options.traffic)
    require_ports(options)
    with _data_dir(options, config) as folder:
        settings = demo_settings(options, folder, config)
        prepare_database(settings)
        secret = new_token(settings, "demo", Role.OPERATOR, _TOKEN_LIFE, by="spectuner demo")
        board = Board(console=console)
        try:
            with open_site(settings) as site:
                show = Show(
                    options=options,
                    prompts=prompts,
                    stack=Stack(options=options, settings=settings, logs=folder, say=board.say),
                    board=board,
                    site=site,
                    link=sign_in_link(settings, secret),
                    before=totals_before(site.store, site.engine),
                )
                return asyncio.run(show.run())
        except asyncio.CancelledError:
            return None
        finally:
            revoke_token(settings, secret)


@contextmanager
def _data_dir(options: DemoOptions, config: Path | None) -> Iterator[Path]:
    if not options.keeps:
        with tempfile.TemporaryDirectory(prefix="spectuner-demo-") as thrown_away:
            yield Path(thrown_away)
        return
    kept = options.data_dir or load_settings(config).data_dir / "demo"
    kept = kept.expanduser().absolute()
    try:
        kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidDataDir(f"--data-dir {kept} cannot be used: {error.strerror}") from error
    with (kept / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidDataDir(
                f"another demo keeps its facts in {kept}; choose another folder with --data-dir, "
                "or use --no-keep"
            ) from None
        yield kept
