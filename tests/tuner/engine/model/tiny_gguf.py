"""Writes a GGUF file small enough to be dequantised in a moment: one Llama layer, byte tokens."""

from pathlib import Path

import gguf
import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

HIDDEN, HEADS, MLP, LAYERS = 32, 2, 64, 1
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)


def write_tiny_gguf(path: Path, seed: int = 0) -> Path:
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(ByteLevel.alphabet()), "ab"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(1024)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["a b"])
    writer.add_chat_template(CHAT_TEMPLATE)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    generator = np.random.default_rng(seed)
    for name, shape in _shapes(len(tokens)).items():
        writer.add_tensor(name, generator.normal(0, 0.1, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _shapes(vocabulary: int) -> dict[str, tuple[int, ...]]:
    square, up, down = (HIDDEN, HIDDEN), (MLP, HIDDEN), (HIDDEN, MLP)
    layer = {
        "attn_norm": (HIDDEN,),
        "attn_q": square,
        "attn_k": square,
        "attn_v": square,
        "attn_output": square,
        "ffn_norm": (HIDDEN,),
        "ffn_gate": up,
        "ffn_up": up,
        "ffn_down": down,
    }
    blocks = {
        f"blk.{index}.{name}.weight": shape
        for index in range(LAYERS)
        for name, shape in layer.items()
    }
    return {"token_embd.weight": (vocabulary, HIDDEN), "output_norm.weight": (HIDDEN,), **blocks}
