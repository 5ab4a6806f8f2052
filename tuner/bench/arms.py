"""Which Settings a benchmark measures, given what the loaded engine can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectors.records import OFF, Method, Setting
from tuner.engine.capabilities import Capabilities, MethodCapability

WITHOUT_WEIGHTS = (Method.PROMPT_LOOKUP, Method.SUFFIX)
"""Methods that copy from prompt and output: for routes whose answers repeat their prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeShape:
    """A tree of candidates for methods that can branch.

    Attributes:
        nodes: draft tokens at most.
        width: children of a token at most.
    """

    nodes: int
    width: int


DEFAULT_TREES = (TreeShape(nodes=5, width=3), TreeShape(nodes=15, width=3))
"""With the last committed token 6 and 16 positions: as many as cost the CPU what one costs, and as
many as the weights are prepacked for.
"""


def arms(
    capabilities: Capabilities,
    draft_lengths: Sequence[int],
    trees: Sequence[TreeShape],
    *,
    has_adaptive: bool = False,
) -> list[Setting]:
    """Return speculation off and every loaded method at every draft length and tree that fits.

    Off is measured like any other: how far it lies from 1 says how far the run can be trusted.

    Args:
        capabilities: what is loaded.
        draft_lengths: of chains; the depths that trees may have.
        trees: of methods that can branch.
        has_adaptive: add each method that can adapt, the longest length its ceiling.
    """
    chosen = [OFF]
    for capability in capabilities.methods:
        if capability.method is not Method.OFF:
            chosen.extend(_chains(capability, draft_lengths))
            chosen.extend(_trees(capability, draft_lengths, trees))
            if has_adaptive and capability.method.can_adapt:
                longest = _lengths(capability, draft_lengths)[-1]
                chosen.append(Setting(method=capability.method, k=longest, is_adaptive=True))
    return chosen


def not_loaded(capabilities: Capabilities) -> list[Method]:
    """Return the methods that the engine could not load: their weights are missing."""
    loaded = {capability.method for capability in capabilities.methods}
    return [method for method in Method if method not in loaded]


def _chains(capability: MethodCapability, draft_lengths: Sequence[int]) -> Iterator[Setting]:
    for k in _lengths(capability, draft_lengths):
        yield Setting.from_dict({"method": capability.method.value, "k": k})


def _trees(
    capability: MethodCapability, draft_lengths: Sequence[int], trees: Sequence[TreeShape]
) -> Iterator[Setting]:
    """Yield each tree at the greatest depth at which it still branches all the way down."""
    if not capability.method.can_branch:
        return
    for tree in trees:
        depths = [k for k in _lengths(capability, draft_lengths) if 2 * k - 1 <= tree.nodes]
        if depths:
            yield Setting(
                method=capability.method,
                k=max(depths),
                tree_nodes=tree.nodes,
                tree_width=tree.width,
            )


def _lengths(capability: MethodCapability, draft_lengths: Sequence[int]) -> list[int]:
    """Return the draft lengths a method can be asked for, those beyond it cut to its most."""
    return sorted({min(k, capability.max_k) for k in draft_lengths})
