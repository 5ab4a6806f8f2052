"""From the logits of a pass to what each row gets: the bridge between core and verification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from collectors.records import Method
from tuner.engine.drafters.base import Draft
from tuner.engine.request import TokenLogprob
from tuner.engine.row import Row
from tuner.engine.verification.allowed import allowed_tokens
from tuner.engine.verification.drawing import NO_TOKEN
from tuner.engine.verification.logprobs import token_logprobs
from tuner.engine.verification.rows import Block
from tuner.engine.verification.verify_batch import Proposal, verify_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What verification decided for one row.

    Attributes:
        accepted: draft tokens kept.
        path: which of the draft's tokens those are.
        token_ids: the kept draft tokens and the target's own token.
        logprobs: one per token where asked for.
        error: one line where no token could be drawn; empty otherwise.
        is_refused: True where what the request asked for leaves no token.
    """

    accepted: int
    path: tuple[int, ...] = ()
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    error: str = ""
    is_refused: bool = False


def judge(
    logits: Tensor,
    *,
    rows: Sequence[Row],
    drafts: Sequence[Draft],
    vocab_of: Callable[[Method], Tensor | None],
) -> list[Verdict]:
    """Verify the drafts of a step.

    Args:
        logits: [N, V] raw, the positions of each row back to back: its draft length and one.
        rows: the rows that get tokens in this step.
        drafts: one per row, empty where it has none.
        vocab_of: ids behind the draft probabilities of a method; None for the whole vocabulary.
    """
    if not rows:
        return []
    logits = logits.float()
    block = Block.from_drafts(
        [draft.token_ids for draft in drafts], [draft.parents for draft in drafts]
    )
    verified = verify_batch(
        logits,
        block,
        [row.sampler for row in rows],
        rules=[row.setting.rule for row in rows],
        proposals=_proposals(rows, drafts, vocab_of),
        allowed=allowed_tokens([row.grammar for row in rows], block, logits),
    )
    accepted, following = verified.accepted_len.tolist(), verified.next_token.tolist()
    paths = verified.path.tolist()
    return [
        _verdict(logits, block, number, row, tuple(paths[number][:kept]), following[number])
        for number, (row, kept) in enumerate(zip(rows, accepted, strict=True))
    ]


def _verdict(
    logits: Tensor, block: Block, number: int, row: Row, path: tuple[int, ...], following: int
) -> Verdict:
    if following == NO_TOKEN:
        return Verdict(
            accepted=len(path),
            path=path,
            token_ids=(),
            error=_no_token_reason(row),
            is_refused=_is_refused(row, logits[list(block.positions(number))]),
        )
    drafted = block.drafts[number]
    token_ids = (*(drafted[node] for node in path), following)
    logprobs: tuple[TokenLogprob, ...] = ()
    if row.request.sampling.logprobs is not None:
        first = block.starts[number]
        positions = torch.tensor([first, *(first + 1 + node for node in path)])
        logprobs = token_logprobs(
            logits[positions.to(logits.device)], token_ids, row.request.sampling.logprobs
        )
    return Verdict(accepted=len(path), path=path, token_ids=token_ids, logprobs=logprobs)


def _no_token_reason(row: Row) -> str:
    if row.grammar is not None and row.grammar.fault:
        return f"the grammar cannot be followed further: {row.grammar.fault}"
    return "no token can be drawn: the model gave no finite logits, or a bias or grammar bans all"


def _is_refused(row: Row, logits: Tensor) -> bool:
    """Tell whether the row's own bans, minimum length or grammar left no token to draw."""
    sampler = row.sampler
    has_bans = bool(len(sampler.bias_ids)) or sampler.num_endless > 0 or row.grammar is not None
    return has_bans and bool(torch.isfinite(logits).any(dim=1).all())


def _proposals(
    rows: Sequence[Row],
    drafts: Sequence[Draft],
    vocab_of: Callable[[Method], Tensor | None],
) -> list[Proposal]:
    """Gather the draft probabilities of each method's rows, padded to the longest draft."""
    by_method: dict[Method, list[int]] = {}
    for number, (row, draft) in enumerate(zip(rows, drafts, strict=True)):
        if draft.probs is not None:
            by_method.setdefault(row.setting.method, []).append(number)
    return [
        Proposal(
            rows=tuple(numbers),
            probs=pad_sequence([_probs(drafts[number]) for number in numbers], batch_first=True),
            vocab=vocab_of(method),
        )
        for method, numbers in by_method.items()
    ]


def _probs(draft: Draft) -> Tensor:
    return torch.empty(0) if draft.probs is None else draft.probs
