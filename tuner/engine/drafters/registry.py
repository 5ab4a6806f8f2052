"""Which drafters an engine has: one small loader a method, and where its weights are found."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

from collectors.errors import InvalidRecord
from collectors.lookup_suffix import SuffixStore
from collectors.records import Method
from tuner.engine.drafters.base import Drafter
from tuner.engine.drafters.draft_model import DraftModelDrafter
from tuner.engine.drafters.draft_schedule import ScheduleKind
from tuner.engine.drafters.lookahead import LookaheadDrafter
from tuner.engine.drafters.prompt_lookup import PromptLookupDrafter
from tuner.engine.drafters.self_sparse import SelfSparseDrafter
from tuner.engine.drafters.suffix import SuffixDrafter
from tuner.engine.drafters.trained_heads import HEAD_LOADERS
from tuner.engine.drafters.universal import UniversalDrafter
from tuner.engine.errors import StartupError
from tuner.engine.model.bundled_model import BUNDLED, resolve_model
from tuner.engine.model.weights import (
    LoadedDraft,
    LoadedModel,
    load_beside,
    load_head_draft,
    shares_vocabulary,
)
from tuner.engine.settings import NO_DRAFT_MODEL, EngineSettings, default_name, draft_dtype

Loader: TypeAlias = Callable[[EngineSettings, LoadedModel], Drafter | None]
"""Returns None where the settings name no weights and none are shipped for the target."""

_LOGGER = logging.getLogger(__name__)
_SHIPPED = Path(__file__).parents[1] / "heads"


def load_drafters(settings: EngineSettings, target: LoadedModel) -> dict[Method, Drafter]:
    """Load every drafter that the settings ask for.

    Raises:
        StartupError: a path that cannot be served, or a method asked for by name without weights.
    """
    _check_heads(settings)
    wanted = tuple(_LOADERS) if settings.methods is None else settings.methods
    drafters: dict[Method, Drafter] = {}
    for method in wanted:
        drafter = _loader(method)(settings, target)
        if drafter is not None:
            drafters[method] = drafter
        elif settings.methods is not None:
            raise StartupError(
                f"method {method.value!r} has no weights for {default_name(settings.model)}; "
                f"give them with {_option(method)}, or leave it out of --methods"
            )
    return drafters


def find_draft(settings: EngineSettings) -> Path | None:
    """Return the directory of the draft model that the settings name; None for none.

    Raises:
        StartupError: there is none at the path.
    """
    if settings.draft == NO_DRAFT_MODEL:
        return None
    if settings.draft == BUNDLED:
        return _shipped(settings, Method.DRAFT_MODEL)
    return _existing("draft model", settings.draft, f"{BUNDLED!r} or {NO_DRAFT_MODEL!r}")


def find_head(settings: EngineSettings, method: Method) -> Path | None:
    """Return the directory of a method's trained head; None where there is none.

    Raises:
        StartupError: there is none at the path that the settings name.
    """
    given = settings.heads.get(method)
    if given is None:
        return _shipped(settings, method)
    return _existing(f"{method} head", given, "or leave out --head")


def _draft_model(settings: EngineSettings, target: LoadedModel) -> Drafter | None:
    path = find_draft(settings)
    if path is None:
        return None
    if (path / "manifest.json").exists():
        return _own_draft(load_head_draft(path, target, draft_dtype(settings)), settings)
    path = resolve_model(settings.draft)
    model = load_beside(path, target)
    if not shares_vocabulary(model, target):
        return _universal(path.name, model, settings, target)
    draft = LoadedDraft(
        decoder=model.decoder,
        draft_vocab=None,
        drafter_id=path.name,
        weights_hash=model.weights_hash,
    )
    return _own_draft(draft, settings)


def _own_draft(draft: LoadedDraft, settings: EngineSettings) -> Drafter:
    return DraftModelDrafter(
        draft.decoder,
        num_slots=settings.limits.max_rows,
        max_context_tokens=settings.limits.max_context_tokens,
        draft_vocab=draft.draft_vocab,
        drafter_id=draft.drafter_id,
        drafter_hash=draft.weights_hash,
        min_confidence=settings.draft_min_confidence,
        schedule=_schedule(settings),
    )


def _universal(
    name: str, model: LoadedModel, settings: EngineSettings, target: LoadedModel
) -> Drafter:
    _LOGGER.info("draft model %r has another tokenizer than the target: it drafts by text", name)
    return UniversalDrafter(
        model.decoder,
        draft_codec=model.codec,
        target_codec=target.codec,
        num_slots=settings.limits.max_rows,
        max_context_tokens=settings.limits.max_context_tokens,
        drafter_id=f"universal:{name}",
        drafter_hash=model.weights_hash,
        min_confidence=settings.draft_min_confidence,
        schedule=_schedule(settings),
    )


def _prompt_lookup(settings: EngineSettings, target: LoadedModel) -> Drafter:
    del settings, target
    return PromptLookupDrafter()


def _suffix(settings: EngineSettings, target: LoadedModel) -> Drafter:
    del target
    kept = settings.suffix_store_tokens
    try:
        return SuffixDrafter(SuffixStore(kept) if kept else None)
    except InvalidRecord as error:
        raise StartupError(f"{error}; give --suffix-store-tokens 0 for none") from error


def _lookahead(settings: EngineSettings, target: LoadedModel) -> Drafter:
    del settings, target
    return LookaheadDrafter()


def _self_sparse(settings: EngineSettings, target: LoadedModel) -> Drafter:
    del target
    window = settings.sparse_window_tokens
    if window < 1:
        raise StartupError(f"a window of {window} tokens is none; raise --sparse-window")
    return SelfSparseDrafter(window_tokens=window)


def _head(method: Method, settings: EngineSettings, target: LoadedModel) -> Drafter | None:
    path = find_head(settings, method)
    return None if path is None else HEAD_LOADERS[method](path, settings, target)


_LOADERS: Mapping[Method, Loader] = {
    Method.DRAFT_MODEL: _draft_model,
    Method.PROMPT_LOOKUP: _prompt_lookup,
    Method.SUFFIX: _suffix,
    Method.LOOKAHEAD: _lookahead,
    Method.SELF_SPARSE: _self_sparse,
    **{method: partial(_head, method) for method in HEAD_LOADERS},
}


def _loader(method: Method) -> Loader:
    if method not in _LOADERS:
        legal = ", ".join(_LOADERS)
        raise StartupError(f"method {method.value!r} drafts nothing; --methods takes: {legal}")
    return _LOADERS[method]


def _check_heads(settings: EngineSettings) -> None:
    """Refuse heads that nothing would load."""
    for method in settings.heads:
        if method not in HEAD_LOADERS:
            legal = ", ".join(HEAD_LOADERS)
            raise StartupError(f"method {method.value!r} has no head; --head takes: {legal}")
        if settings.methods is not None and method not in settings.methods:
            raise StartupError(f"--head gives {method.value!r}, which --methods leaves out")


def _schedule(settings: EngineSettings) -> ScheduleKind:
    try:
        return ScheduleKind(settings.draft_schedule)
    except ValueError:
        legal = ", ".join(ScheduleKind)
        raise StartupError(
            f"draft schedule {settings.draft_schedule!r} is not one of: {legal}"
        ) from None


def _shipped(settings: EngineSettings, method: Method) -> Path | None:
    path = _SHIPPED / default_name(settings.model) / method
    return path if (path / "manifest.json").exists() else None


def _existing(what: str, path_text: str, instead: str) -> Path:
    path = Path(path_text).expanduser()
    if not path.exists():
        raise StartupError(f"{what} {path_text!r} does not exist; give a directory, {instead}")
    return path


def _option(method: Method) -> str:
    return "--draft PATH" if method is Method.DRAFT_MODEL else f"--head {method.value}=PATH"
