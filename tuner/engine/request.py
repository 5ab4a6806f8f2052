"""What goes into the engine core and what comes out of it.

The server turns HTTP into `EngineRequest`, the core answers with a `Delta` per request and step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from collectors.records import FinishReason, Setting
from tuner.engine.grammar import Grammar


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen.

    Attributes:
        temperature: 0 is greedy.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set of tokens with at least this mass; 1 keeps all.
        min_p: keep tokens with at least this share of the most likely token's probability.
        repetition_penalty: divides positive and multiplies negative logits of tokens seen in
            prompt or output; 1 changes nothing.
        presence_penalty: subtracted once from the logit of a token seen in the output.
        frequency_penalty: subtracted for each time the token was seen in the output.
        logit_bias: token id to what is added to its logit.
        min_tokens: EOS and stop ids are impossible before so many output tokens.
        max_tokens: output tokens at most; 0 reads the prompt only.
        stop: strings that end the answer; none of them is delivered.
        stop_token_ids: token ids that end the answer; not delivered as text.
        ignore_eos: go on past the model's own end token.
        seed: seed of the row's random generator; None for a fresh one.
        logprobs: number of alternatives to report with each token; None for no logprobs.
        grammar: what the answer must be; its end ends the answer, whatever `min_tokens` and
            `ignore_eos` say. None for free text.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    min_tokens: int = 0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None
    grammar: Grammar | None = None

    @property
    def is_greedy(self) -> bool:
        """True where the most likely token is always taken."""
        return self.temperature == 0

    @property
    def has_penalties(self) -> bool:
        """True where earlier tokens change the logits."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """One sequence to complete.

    Attributes:
        request_id: unique among live requests.
        prompt_ids: prompt token ids, at least one.
        sampling: how tokens are chosen.
        route: route name.
        is_shadow: replayed, not live: waits behind live requests and is not counted as traffic.
        setting: Setting pinned by the request; None follows the plan.
        prompt_logprobs: number of alternatives to report with each prompt token after the first;
            None for no log probabilities of the prompt.
        arrived_s: monotonic seconds at arrival.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    route: str
    is_shadow: bool = False
    setting: Setting | None = None
    prompt_logprobs: int | None = None
    arrived_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """Log probability of one token and of its best alternatives.

    Attributes:
        token_id: the token, delivered or of the prompt.
        logprob: log-softmax of the model's raw logits at the token, natural log.
        top: best alternatives as (token id, logprob), best first.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """What a request has cost and got so far.

    Attributes:
        prompt_tokens: prompt length.
        completion_tokens: tokens delivered.
        passes: target passes after the prefill (P).
        verify_passes: passes that verified a draft (V).
        drafted: draft tokens verified (D).
        accepted: draft tokens kept (A).
        accepted_histogram: verify passes by number of accepted tokens, dense from 0.
        max_k: longest draft length asked for.
    """

    prompt_tokens: int
    completion_tokens: int = 0
    passes: int = 0
    verify_passes: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_histogram: tuple[int, ...] = (0,)
    max_k: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What one step delivered to one request.

    Attributes:
        request_id: whose.
        token_ids: delivered tokens, the one that ended the answer included.
        text: delivered text; held back while it may still turn into a stop string.
        logprobs: one per delivered token where asked for.
        prompt_logprobs: one per prompt token after the first where asked for, in the first delta.
        finish_reason: None while the request goes on.
        stop_reason: the stop string or stop token id that ended it; None otherwise.
        counts: totals so far.
        setting: the Setting of this step.
        error: one line where finish_reason is error; empty otherwise.
        is_refused: True where what the request asked for is the cause of the error.
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    counts: RequestCounts
    setting: Setting
    error: str = ""
    is_refused: bool = False
