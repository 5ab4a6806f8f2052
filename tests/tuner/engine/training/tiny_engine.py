"""The tiny target as the engine computes it."""

from __future__ import annotations

from tuner.engine.model.layers import LlamaShape
from tuner.engine.model.llama import LlamaDecoder
from tuner.engine.training.target import Target


def engine_decoder(target: Target) -> LlamaDecoder:
    shape = target.shape
    return LlamaDecoder(
        LlamaShape(
            num_layers=shape.num_layers,
            hidden_size=shape.hidden,
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            vocab_size=shape.vocab,
            rope_theta=shape.rope_theta,
            norm_eps=shape.rms_eps,
            max_positions=64,
        ),
        target.weights,
        embedding=target.weights["embed_tokens.weight"],
        head=target.weights["embed_tokens.weight"],
        is_packed=False,
    )
