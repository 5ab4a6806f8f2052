"""``spectuner trial``: tries on live traffic what a recommendation proposes, and not for long."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.errors import CommandFailed
from tuner.cli.options import ConfigOption, WhoOption, acting_user, read_settings
from tuner.cli.output import JsonOption, Output


def trial(
    route: Annotated[str, typer.Argument(help="Route on which to try.")],
    who: WhoOption = "",
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Run a route at the most promising Setting that lacks live evidence, on few of its tokens.

    The running service takes it back when its time or its tokens are used up.
    """
    output, settings = Output.open(json_path), read_settings(config)
    from tuner.workflows.recommend import newest_of
    from tuner.workflows.site import open_site
    from tuner.workflows.trial import live_trials, start

    with open_site(settings) as site:
        found = live_trials(newest_of(site, route).said)
        if not found:
            raise CommandFailed(
                f"nothing is proposed for a live trial on {route}; see spectuner explain {route}"
            )
        begun = start(site, route, found[0], who=acting_user(who))
    seconds = begun.end_s - begun.start_s
    label, level = begun.setting.label, begun.load.label
    output.console.print(
        f"{label} is on trial on {route} at load {level} for {seconds:.0f} s or "
        f"{begun.most_tokens} tokens; the service takes it back.",
        markup=False,
        highlight=False,
    )
    output.write(
        {
            "route": route,
            "setting": begun.setting.to_dict(),
            "load": level,
            "seconds": seconds,
            "most_tokens": begun.most_tokens,
        }
    )
