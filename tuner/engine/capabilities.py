"""What a loaded engine can do, and why it refuses a Setting it cannot."""

from __future__ import annotations

from dataclasses import dataclass

from collectors.records import AcceptanceRule, Method, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodCapability:
    """One drafting method that is loaded.

    Attributes:
        method: the method.
        max_k: longest draft it can be asked for, in tokens; 0 for off.
        drafter: id of its weights; empty for methods without weights.
        drafter_hash: sha256 over its weights; empty for methods without weights.
    """

    method: Method
    max_k: int
    drafter: str = ""
    drafter_hash: str = ""

    def refusal_reason(self, setting: Setting) -> str | None:
        """Return why a Setting of this method cannot be served; None where it can."""
        if setting.k > self.max_k:
            return f"k {setting.k} is above {self.max_k}, the most that {self.method} can draft"
        if setting.drafter not in ("", self.drafter):
            known = repr(self.drafter) if self.drafter else "none (leave it empty)"
            return f"drafter {setting.drafter!r} is not loaded for {self.method}; loaded: {known}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the loaded engine can do.

    Attributes:
        model: model id as served.
        methods: the loaded methods, off among them.
        rules: acceptance rules it can verify with.
        max_rows: sequences in one batch at most.
        max_context_tokens: prompt and answer of one sequence at most.
        queue_limit: requests that may wait.
        vocab_size: token ids are below this.
    """

    model: str
    methods: tuple[MethodCapability, ...]
    rules: tuple[AcceptanceRule, ...] = tuple(AcceptanceRule)
    max_rows: int
    max_context_tokens: int
    queue_limit: int
    vocab_size: int

    def refusal_reason(self, setting: Setting) -> str | None:
        """Return why a Setting cannot be served; None where it can."""
        if setting.rule not in self.rules:
            legal = ", ".join(self.rules)
            return f"rule {setting.rule.value!r} is not available; use one of: {legal}"
        for capability in self.methods:
            if capability.method is setting.method:
                return capability.refusal_reason(setting)
        loaded = ", ".join(capability.method for capability in self.methods)
        return f"method {setting.method.value!r} has no drafter loaded; use one of: {loaded}"

    def drafter_hash_of(self, setting: Setting) -> str:
        """Return the sha256 of the drafter's weights; empty for methods without weights."""
        hashes = {capability.method: capability.drafter_hash for capability in self.methods}
        return hashes.get(setting.method, "")
