"""One point of speculation: method, draft length, tree, rule."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self

from collectors.records.parsing import JsonObject, integer, member, require, text, truth

MAX_DRAFT_LENGTH = 16
MAX_TREE_NODES = 64
MAX_LOOKUP_TOKENS = 32
"""Longest n-gram matched: an index holds every length of every place, so that its size is bounded.

Measured: 900 tokens take 6 MiB at 32, and 1 GiB and 1.8 s at 1000.
"""


class Method(StrEnum):
    """How draft tokens are guessed."""

    OFF = "off"
    DRAFT_MODEL = "draft_model"
    PROMPT_LOOKUP = "prompt_lookup"
    SUFFIX = "suffix"
    MEDUSA = "medusa"
    EAGLE = "eagle"
    LOOKAHEAD = "lookahead"
    MTP = "mtp"
    PARD = "pard"
    MLP_SPECULATOR = "mlp_speculator"
    SELF_SPARSE = "self_sparse"

    @property
    def can_branch(self) -> bool:
        """True where the drafter can offer a tree of candidates instead of a chain."""
        return self in _BRANCHING

    @property
    def can_adapt(self) -> bool:
        """True where the drafter knows a chance for each token, so that a draft may end early."""
        return self in _ADAPTING


_BRANCHING = frozenset({Method.MEDUSA, Method.EAGLE, Method.MTP, Method.MLP_SPECULATOR})
_ADAPTING = _BRANCHING | {Method.DRAFT_MODEL, Method.PARD, Method.SELF_SPARSE, Method.SUFFIX}


class AcceptanceRule(StrEnum):
    """How the target decides which draft tokens to keep.

    At temperature 0 every lossless rule keeps what equals the target's likeliest token.
    """

    REJECTION = "rejection"
    TOKEN_MATCH = "token_match"
    TYPICAL = "typical"

    @property
    def is_lossless(self) -> bool:
        """True where the output is provably distributed as the target alone."""
        return self is not AcceptanceRule.TYPICAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One point of speculation. ``Setting()`` is speculation off.

    Attributes:
        method: what guesses the draft tokens.
        k: draft length asked for, in tokens, of a tree its depth; 0 exactly when the method is off.
        tree_nodes: draft tokens of a tree at most; 0 for a chain, and for lookahead, whose tree
            follows from k.
        tree_width: children of a tree's token at most; 0 where tree_nodes is 0.
        rule: how the target verifies.
        lookup_min: shortest n-gram matched by prompt_lookup, in tokens; 0 for other methods.
        lookup_max: longest n-gram matched by prompt_lookup, in tokens; 0 for other methods.
        drafter: id of the drafter weights; empty for methods without weights.
        is_adaptive: k is the ceiling, and the engine ends each draft where its next position no
            longer pays at this load; chains only.
    """

    method: Method = Method.OFF
    k: int = 0
    tree_nodes: int = 0
    tree_width: int = 0
    rule: AcceptanceRule = AcceptanceRule.REJECTION
    lookup_min: int = 0
    lookup_max: int = 0
    drafter: str = ""
    is_adaptive: bool = False

    def __post_init__(self) -> None:
        """Refuse combinations that mean nothing."""
        if self.method is Method.OFF:
            require(self.k == 0, f"k must be 0 when the method is off, got {self.k}")
        else:
            require(
                1 <= self.k <= MAX_DRAFT_LENGTH,
                f"k must be 1 to {MAX_DRAFT_LENGTH} for {self.method}, got {self.k}",
            )
        self._check_tree()
        self._check_adaptive()
        if self.method is Method.PROMPT_LOOKUP:
            require(
                1 <= self.lookup_min <= self.lookup_max <= MAX_LOOKUP_TOKENS,
                f"prompt_lookup needs 1 <= lookup_min <= lookup_max <= {MAX_LOOKUP_TOKENS}, "
                f"got {self.lookup_min} and {self.lookup_max}",
            )
        else:
            require(
                self.lookup_min == self.lookup_max == 0,
                f"lookup_min and lookup_max belong to prompt_lookup, not to {self.method}",
            )

    def _check_tree(self) -> None:
        if self.tree_nodes == self.tree_width == 0:
            return
        require(self.method.can_branch, f"{self.method} drafts no trees; leave out tree_nodes")
        require(
            self.k <= self.tree_nodes <= MAX_TREE_NODES and 2 <= self.tree_width <= self.tree_nodes,
            f"a tree needs k <= tree_nodes <= {MAX_TREE_NODES} and 2 <= tree_width <= tree_nodes, "
            f"got k {self.k}, tree_nodes {self.tree_nodes} and tree_width {self.tree_width}",
        )

    def _check_adaptive(self) -> None:
        if not self.is_adaptive:
            return
        require(
            self.method.can_adapt,
            f"{self.method} cannot be adaptive; leave it out, or use one of: "
            f"{', '.join(sorted(_ADAPTING))}",
        )
        require(
            self.tree_nodes == 0,
            f"a tree of {self.tree_nodes} cannot be adaptive; leave out tree_nodes or is_adaptive",
        )

    @property
    def is_tree(self) -> bool:
        """True where a tree of candidates is drafted; lookahead lays out its own."""
        return self.tree_nodes > 0 or self.method is Method.LOOKAHEAD

    @property
    def max_nodes(self) -> int:
        """Draft tokens of one row and step at most."""
        if self.method is Method.LOOKAHEAD:
            return MAX_TREE_NODES
        return self.tree_nodes or self.k

    @property
    def label(self) -> str:
        """Short name for people, such as ``draft_model k=3``."""
        if self.method is Method.OFF:
            return "off"
        rule = "" if self.rule is AcceptanceRule.REJECTION else f" {self.rule}"
        lossy = "" if self.rule.is_lossless else " (lossy)"
        tree = f" tree={self.tree_nodes}x{self.tree_width}" if self.tree_nodes else ""
        adaptive = " adaptive" if self.is_adaptive else ""
        return f"{self.method} k={self.k}{tree}{adaptive}{rule}{lossy}"

    def to_dict(self) -> dict[str, object]:
        """Return the wire form; `is_adaptive` only where true, so that older digests stay."""
        plain = asdict(self)
        if not self.is_adaptive:
            del plain["is_adaptive"]
        return plain

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the wire form; prompt_lookup without a window gets 1 to 3.

        Raises:
            InvalidRecord: an unknown key, method or rule, or a value out of range.
        """
        unknown = sorted(set(data) - set(cls.__slots__))
        require(not unknown, f"unknown setting key {unknown}; known: {sorted(cls.__slots__)}")
        method = member(Method, text(data, "method", "off"), "method")
        is_lookup = method is Method.PROMPT_LOOKUP
        return cls(
            method=method,
            k=integer(data, "k", 0),
            tree_nodes=integer(data, "tree_nodes", 0),
            tree_width=integer(data, "tree_width", 0),
            rule=member(AcceptanceRule, text(data, "rule", "rejection"), "rule"),
            lookup_min=integer(data, "lookup_min", 1 if is_lookup else 0),
            lookup_max=integer(data, "lookup_max", 3 if is_lookup else 0),
            drafter=text(data, "drafter", ""),
            is_adaptive=truth(data, "is_adaptive"),
        )


OFF = Setting()
