"""``spectuner engine`` and ``spectuner model``: the bundled engine and what it loads."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from collectors.records import Method, require_route_name
from tuner.cli.errors import UsageError
from tuner.cli.memory import DEFAULT_MAX_CONTEXT, DEFAULT_MAX_ROWS
from tuner.cli.output import JsonOption, Output

if TYPE_CHECKING:
    from tuner.engine.settings import EngineSettings

_LOGGER = logging.getLogger(__name__)
_DEFAULT_PORT = 8401
_MODEL = "Model"
_LIMITS = "Limits"


ModelOption: TypeAlias = Annotated[
    str,
    typer.Option(help="bundled, a Hugging Face directory, or a GGUF file.", rich_help_panel=_MODEL),
]
DraftOption: TypeAlias = Annotated[
    str,
    typer.Option(
        help="bundled, a directory with a model of any tokenizer, or none.",
        rich_help_panel=_MODEL,
    ),
]
DraftConfidenceOption: TypeAlias = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        help="A token of the draft model less probable than this ends its draft.",
        rich_help_panel=_MODEL,
    ),
]
DraftScheduleOption: TypeAlias = Annotated[
    str,
    typer.Option(
        help="constant drafts k tokens each time; heuristic fewer after a refused one.",
        rich_help_panel=_MODEL,
    ),
]
HeadOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="METHOD=PATH",
        help="Trained head of a method; repeat. Shipped ones are found by themselves.",
        rich_help_panel=_MODEL,
    ),
]
MethodsOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="METHOD,...",
        help="Drafting methods to load; all that have what they need when absent.",
        rich_help_panel=_MODEL,
    ),
]
SuffixStoreOption: TypeAlias = Annotated[
    int,
    typer.Option(
        min=0,
        help="Past output tokens of each route that suffix drafting looks in; 0 for none.",
        rich_help_panel=_MODEL,
    ),
]
SparseWindowOption: TypeAlias = Annotated[
    int,
    typer.Option(
        min=1, help="Latest tokens that self_sparse drafting looks at.", rich_help_panel=_MODEL
    ),
]
ServedNameOption: TypeAlias = Annotated[
    str, typer.Option(help="Model id for clients.", rich_help_panel=_MODEL)
]
DtypeOption: TypeAlias = Annotated[
    str, typer.Option(help="float32, bfloat16 or float16.", rich_help_panel=_MODEL)
]
DeviceOption: TypeAlias = Annotated[
    str, typer.Option(help="cpu or cuda:0.", rich_help_panel=_MODEL)
]
HostOption: TypeAlias = Annotated[str, typer.Option(help="Address to listen on.")]
PortOption: TypeAlias = Annotated[int, typer.Option(help="Port to listen on; 0 for any.")]
ApiKeyOption: TypeAlias = Annotated[
    str, typer.Option(envvar="SPECTUNER_ENGINE_API_KEY", help="Key that clients must send.")
]
DrainOption: TypeAlias = Annotated[
    float,
    typer.Option(
        min=0, help="Seconds that running answers get after SIGTERM.", rich_help_panel=_LIMITS
    ),
]
MaxConnectionsOption: TypeAlias = Annotated[
    int, typer.Option(min=1, help="Connections held open.", rich_help_panel=_LIMITS)
]
AllowedHostOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="A name that is answered to without a key; repeat. Loopback's always are."),
]
RouteOption: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="A legal route name; repeat. Open when absent.")
]
MaxRowsOption: TypeAlias = Annotated[
    int, typer.Option(min=1, help="Sequences in the batch.", rich_help_panel=_LIMITS)
]
MaxContextOption: TypeAlias = Annotated[
    int, typer.Option(min=16, help="Tokens of a sequence.", rich_help_panel=_LIMITS)
]
QueueLimitOption: TypeAlias = Annotated[
    int, typer.Option(min=0, help="Requests that may wait.", rich_help_panel=_LIMITS)
]
PrefillTokensOption: TypeAlias = Annotated[
    int, typer.Option(min=1, help="Prompt tokens of a step.", rich_help_panel=_LIMITS)
]
ThreadsOption: TypeAlias = Annotated[
    int, typer.Option(min=0, help="CPU threads; 0 for all.", rich_help_panel=_LIMITS)
]
JournalCapacityOption: TypeAlias = Annotated[
    int, typer.Option(min=1, help="Journal records held.", rich_help_panel=_LIMITS)
]

ReferenceOption: TypeAlias = Annotated[
    int,
    typer.Option(
        min=0,
        help="Drafting steps from one plain step, timed for comparison, to the next; 0 for none.",
        rich_help_panel=_LIMITS,
    ),
]


def engine(
    model: ModelOption = "bundled",
    draft: DraftOption = "bundled",
    draft_min_confidence: DraftConfidenceOption = 0.0,
    draft_schedule: DraftScheduleOption = "constant",
    head: HeadOption = None,
    methods: MethodsOption = "",
    suffix_store_tokens: SuffixStoreOption = 0,
    sparse_window: SparseWindowOption = 256,
    served_name: ServedNameOption = "",
    dtype: DtypeOption = "float32",
    device: DeviceOption = "cpu",
    host: HostOption = "127.0.0.1",
    port: PortOption = _DEFAULT_PORT,
    api_key: ApiKeyOption = "",
    route: RouteOption = None,
    max_rows: MaxRowsOption = DEFAULT_MAX_ROWS,
    max_context: MaxContextOption = DEFAULT_MAX_CONTEXT,
    queue_limit: QueueLimitOption = 256,
    prefill_tokens: PrefillTokensOption = 256,
    threads: ThreadsOption = 0,
    journal_capacity: JournalCapacityOption = 100_000,
    allowed_host: AllowedHostOption = None,
    max_connections: MaxConnectionsOption = 800,
    drain_s: DrainOption = 20.0,
    reference_interval: ReferenceOption = 64,
) -> None:
    """Serve a model with speculative decoding through OpenAI's API on port 8401.

    Speculation is off until a plan is put into force; see `spectuner serve`.
    """
    heads, wanted = _prepare(route or (), head or (), methods)
    from tuner.engine.limits import EngineLimits
    from tuner.engine.settings import EngineSettings

    loaded = EngineSettings(
        model=model,
        served_name=served_name,
        draft=draft,
        draft_min_confidence=draft_min_confidence,
        draft_schedule=draft_schedule,
        heads=heads,
        methods=wanted,
        suffix_store_tokens=suffix_store_tokens,
        sparse_window_tokens=sparse_window,
        limits=EngineLimits.of(max_rows, max_context, queue_limit, prefill_tokens),
        dtype=dtype,
        device=device,
        threads=threads,
        routes=tuple(route) if route else None,
        journal_capacity=journal_capacity,
        reference_interval=reference_interval,
    )
    _serve(loaded, host, port, api_key, tuple(allowed_host or ()), max_connections, drain_s)


def _serve(
    loaded: EngineSettings,
    host: str,
    port: int,
    api_key: str,
    allowed_hosts: tuple[str, ...],
    max_connections: int,
    drain_s: float,
) -> None:
    from tuner.engine.process import EngineProcessSettings, run_engine

    settings = EngineProcessSettings(
        engine=loaded,
        host=host,
        port=port,
        api_key=api_key or None,
        drain_s=drain_s,
        max_connections=max_connections,
        allowed_hosts=allowed_hosts,
    )
    run_engine(settings, on_ready=_say_ready)


def _prepare(
    routes: Sequence[str], heads: Sequence[str], methods: str
) -> tuple[dict[Method, str], tuple[Method, ...] | None]:
    """Check the route names, keep off the hub, and give each line of the log its time.

    Returns:
        The heads given by method, and the methods wanted.

    Raises:
        UsageError: a name is no route's, a head's or a method's.
    """
    for name in routes:
        require_route_name(name)
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    return heads_named(heads), methods_named(methods)


def model(json_path: JsonOption = None) -> None:
    """Prepare the bundled model (once) and print where it lies."""
    output = Output.open(json_path)
    from tuner.engine.model.bundled_model import BUNDLED_NAME, prepare_bundled_model

    with output.console.status(f"Preparing {BUNDLED_NAME} (about half a minute the first time)"):
        path = prepare_bundled_model()
    output.console.print(f"{BUNDLED_NAME} is ready at {path}", highlight=False, soft_wrap=True)
    output.write({"model": BUNDLED_NAME, "path": str(path)})


def heads_named(given: Sequence[str]) -> dict[Method, str]:
    """Read ``METHOD=PATH`` texts.

    Raises:
        UsageError: a text has another form, or names no method.
    """
    heads: dict[Method, str] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or not path:
            raise UsageError(f"head {text!r}: write METHOD=PATH, such as eagle=/models/my-head")
        heads[_method(name)] = path
    return heads


def methods_named(given: str) -> tuple[Method, ...] | None:
    """Read names with commas between them; None where none is given.

    Raises:
        UsageError: a name is no method.
    """
    return tuple(_method(name.strip()) for name in given.split(",")) if given else None


def _method(name: str) -> Method:
    try:
        return Method(name)
    except ValueError:
        legal = ", ".join(method for method in Method if method is not Method.OFF)
        raise UsageError(f"method {name!r} is not one of: {legal}") from None


def _say_ready(url: str) -> None:
    _LOGGER.info("The engine serves on %s", url)
