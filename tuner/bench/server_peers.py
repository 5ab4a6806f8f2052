"""vLLM and llama.cpp as peers: each engine its own process, the same load on both in turns.

A peer that is not installed is skipped with the reason; nothing is downloaded.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from transformers import AutoTokenizer

from collectors.records import OFF, Method, Setting
from tuner.bench.driver import demo_prompts
from tuner.bench.llama_peer import LlamaServer, llama_cases
from tuner.bench.peer_case import PeerCase
from tuner.bench.servers import PEER_ENVIRON, Load, Server, ServerCommand, running
from tuner.engine.errors import ModelNotFound
from tuner.engine.model.bundled_model import BUNDLED, bundled_gguf, resolve_model
from tuner.engine.model.codec import HfCodec
from tuner.engine.settings import EngineSettings
from tuner.errors import TunerError

VLLM = "vllm"
LLAMA_CPP = "llama.cpp"
CONCURRENCIES = (1, 4, 8)
_PEER_NAME = "peer"
_OUR_NAME = "ours"
_DRAFT_LENGTH = 5
_LOOKUP = Setting(method=Method.PROMPT_LOOKUP, k=_DRAFT_LENGTH, lookup_min=1, lookup_max=3)
_SUFFIX = Setting(method=Method.SUFFIX, k=_DRAFT_LENGTH)
_REQUESTS_EACH = 2
_CONTEXT = 1024
_KNOWS = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPeerOptions:
    """Where the peers are and how much is measured.

    Attributes:
        engine: what our engine loads.
        peer_python: interpreter with vLLM; empty for this one.
        llama_server: llama.cpp's server; a name is looked up on the PATH.
        rounds: rounds counted, after one to warm up.
        num_tokens: tokens of an answer.
        threads: CPU threads of every engine.
    """

    engine: EngineSettings
    peer_python: str = ""
    llama_server: str = "llama-server"
    rounds: int = 3
    num_tokens: int = 48
    threads: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Duel:
    """A peer's server, the Setting of ours that does the same, and keys of the peer's bodies.

    Rounds repeat their prompts, so peers run without a cache of prompts.
    """

    peer: str
    case: str
    command: ServerCommand
    setting: Setting
    extra: Mapping[str, object] = field(default_factory=dict)


def compare_servers(options: ServerPeerOptions) -> Iterator[PeerCase]:
    """Compare with every server peer that is there; takes minutes where there is one.

    Args:
        options: where they are, and how much is measured.
    """
    for duel in _duels(options):
        if isinstance(duel, PeerCase):
            yield duel
        else:
            yield from _fight(duel, options)


def _duels(options: ServerPeerOptions) -> Iterator[_Duel | PeerCase]:
    yield from _vllm_duels(options)
    yield from _llama_duels(options)


def _vllm_duels(options: ServerPeerOptions) -> Iterator[_Duel | PeerCase]:
    python = options.peer_python or sys.executable
    if not _knows(python, VLLM):
        yield PeerCase(
            peer=VLLM, case="all", skipped=f"{python} has no vllm; give one with --peer-python"
        )
        return
    yield _vllm_duel(options, python, "plain", OFF, None)
    ngram = {
        "method": "ngram",
        "num_speculative_tokens": _DRAFT_LENGTH,
        "prompt_lookup_min": _LOOKUP.lookup_min,
        "prompt_lookup_max": _LOOKUP.lookup_max,
    }
    yield _vllm_duel(options, python, "prompt_lookup", _LOOKUP, ngram)
    if not _knows(python, "arctic_inference"):
        reason = f"{python} has no arctic_inference, which vLLM's suffix decoding needs"
        yield PeerCase(peer=VLLM, case="suffix", skipped=reason)
        return
    suffix = {"method": "suffix", "num_speculative_tokens": _DRAFT_LENGTH}
    yield _vllm_duel(options, python, "suffix", _SUFFIX, suffix)


def _vllm_duel(
    options: ServerPeerOptions,
    python: str,
    case: str,
    setting: Setting,
    speculation: dict[str, object] | None,
) -> _Duel:
    arguments = [
        *(python, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(resolve_model(options.engine.model))),
        *("--served-model-name", _PEER_NAME),
        *("--dtype", options.engine.dtype, "--enforce-eager"),
        *("--max-model-len", str(_CONTEXT), "--max-num-seqs", "16", "--no-enable-prefix-caching"),
        *("--host", "127.0.0.1", "--port", "{port}"),
    ]
    if speculation is not None:
        arguments += ["--speculative-config", json.dumps(speculation)]
    environ = {
        **PEER_ENVIRON,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{options.threads - 1}",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    command = ServerCommand(name=f"{VLLM}-{case}", arguments=tuple(arguments), environ=environ)
    return _Duel(peer=VLLM, case=case, command=command, setting=setting)


def _llama_duels(options: ServerPeerOptions) -> Iterator[_Duel | PeerCase]:
    program = shutil.which(options.llama_server)
    if program is None:
        reason = f"no program {options.llama_server!r}; give one with --llama-server"
        yield PeerCase(peer=LLAMA_CPP, case="plain", skipped=reason)
        return
    weights, reason = _gguf(options.engine.model)
    if weights is None:
        yield PeerCase(peer=LLAMA_CPP, case="plain", skipped=reason)
        return
    server = LlamaServer(
        program=program,
        threads=options.threads,
        slots=max(CONCURRENCIES),
        context_tokens=_CONTEXT,
    )
    with tempfile.TemporaryDirectory() as folder:
        for case in llama_cases(server, weights, Path(folder)):
            yield _Duel(
                peer=LLAMA_CPP,
                case=case.name,
                command=case.command,
                setting=case.setting,
                extra={"cache_prompt": False},
            )


def _gguf(model: str) -> tuple[Path | None, str]:
    """Return a GGUF file of the model, or None and why there is none."""
    if model != BUNDLED:
        path = Path(model)
        return (path, "") if path.suffix == ".gguf" else (None, f"{model!r} is no GGUF file")
    try:
        return bundled_gguf()[0], ""
    except ModelNotFound as error:
        return None, error.message


def _fight(duel: _Duel, options: ServerPeerOptions) -> list[PeerCase]:
    """Put both servers under the same load in turns; a server that fails is a skipped case."""
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder)
        try:
            with running(_our_command(options), logs) as ours, running(duel.command, logs) as other:
                servers = (
                    Server(ours, {"model": _OUR_NAME, "speculation": duel.setting.to_dict()}),
                    Server(other, {"model": _PEER_NAME, **duel.extra}),
                )
                return [_rounds(duel, options, servers, load) for load in _loads(options)]
        except TunerError as error:
            return [PeerCase(peer=duel.peer, case=duel.case, skipped=str(error))]


def _our_command(options: ServerPeerOptions) -> ServerCommand:
    engine = options.engine
    arguments = [
        *(sys.executable, "-m", "tuner", "engine", "--model", engine.model),
        *("--served-name", _OUR_NAME, "--dtype", engine.dtype),
        *("--threads", str(options.threads), "--max-context", str(_CONTEXT)),
        *("--methods", f"{Method.PROMPT_LOOKUP},{Method.SUFFIX}", "--port", "{port}"),
    ]
    return ServerCommand(name="spectuner-engine", arguments=tuple(arguments))


def _loads(options: ServerPeerOptions) -> list[Load]:
    """Return the demo's prompts at every concurrency: as many as that, two where it is one."""
    path = resolve_model(options.engine.model)
    codec = HfCodec(AutoTokenizer.from_pretrained(path, local_files_only=True), ())
    prompts = demo_prompts(codec, max(CONCURRENCIES))
    return [
        Load(
            prompts=tuple(tuple(ids) for ids in prompts[: max(_REQUESTS_EACH, concurrency)]),
            num_tokens=options.num_tokens,
            concurrency=concurrency,
        )
        for concurrency in CONCURRENCIES
    ]


def _rounds(
    duel: _Duel, options: ServerPeerOptions, servers: tuple[Server, Server], load: Load
) -> PeerCase:
    """Return the median ratio of rounds; who goes first changes with each."""
    ratios = []
    for number in range(options.rounds + 1):
        order = servers if number % 2 else servers[::-1]
        speeds = {server: server.tokens_per_s(load) for server in order}
        if number:
            ratios.append(speeds[servers[0]] / speeds[servers[1]])
    return PeerCase(
        peer=duel.peer,
        case=f"{duel.case}, {load.concurrency} at once",
        ratio=statistics.median(ratios),
    )


def _knows(python: str, module: str) -> bool:
    """Say whether an interpreter has a module, without loading it."""
    try:
        answer = subprocess.run(
            [python, "-c", _KNOWS, module], capture_output=True, check=False, timeout=60
        )
    except OSError:
        return False
    return answer.returncode == 0
