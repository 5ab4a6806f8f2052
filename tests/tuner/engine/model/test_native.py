"""The compiled kernels against torch, and engines that run on them."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from collectors.records import OFF
from tests.tuner.engine.harness import (
    greedy_reference,
    prompts,
    random_decoder,
    request,
    settings_under_test,
    small_engine,
    tokens_of,
)
from tuner.engine.model import native
from tuner.engine.model.attention import PassAttention
from tuner.engine.model.layers import LayerPass, LlamaShape, gated, rms_norm, rotation_table
from tuner.engine.model.native import NativeKernels, compiled, loaded_from, native_kernels
from tuner.engine.model.passes import MaskKind, Span, lay_out
from tuner.engine.model.slots import KvSlots

CPU = torch.device("cpu")
CONTEXT = 80
VOCAB = 24
TREE = (-1, 0, 0, 1, 1, 2, 3)
SHAPE = LlamaShape(
    num_layers=1,
    hidden_size=32,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=VOCAB,
    rope_theta=10000.0,
    norm_eps=1e-5,
    max_positions=CONTEXT,
)


@pytest.fixture(scope="module")
def kernels() -> NativeKernels:
    made = native_kernels(CPU, torch.float32)
    if made is None:
        pytest.skip("no C compiler here")
    return made


def mixed_spans() -> list[Span]:
    """A tree, two chains of unequal length and a prompt too long to share their attention."""
    return [
        Span(slot=0, start=30, token_ids=[1] * len(TREE), parents=TREE),
        Span(slot=1, start=0, token_ids=[2]),
        Span(slot=2, start=17, token_ids=[3, 4, 5]),
        Span(slot=3, start=5, token_ids=[6] * 40),
    ]


def filled_slots(shape: LlamaShape) -> KvSlots:
    slots = KvSlots(
        num_layers=1,
        num_slots=4,
        num_kv_heads=shape.num_kv_heads,
        max_context_tokens=CONTEXT,
        head_dim=shape.head_dim,
        dtype=torch.float32,
        device=CPU,
    )
    generator = torch.Generator().manual_seed(5)
    for held in (slots.keys[0], slots.values[0]):
        held.copy_(torch.randn(held.shape, generator=generator))
    return slots


def attended(
    shape: LlamaShape, spans: Sequence[Span], qkv: Tensor, *, is_native: bool, skipped: int = 0
) -> tuple[Tensor, KvSlots]:
    """Attend a pass over filled slots; a pass whose spans are not told is torch's to attend.

    `skipped` tokens of the text lie in no slot, as where it is seen through a sparse view.
    """
    slots = filled_slots(shape)
    batch = lay_out(spans, MaskKind(device=CPU, dtype=torch.float32, window=shape.window))
    batch = replace(batch, positions=batch.positions + skipped)
    if not is_native:
        assert batch.short is not None
        batch = replace(batch, short=replace(batch.short, spans=()))
    work = LayerPass(batch, slots, shape, rotation_table(shape, CPU))
    return work.attend(0, qkv.clone()), slots


def random_qkv(shape: LlamaShape, num_tokens: int) -> Tensor:
    width = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    return torch.randn(num_tokens, width, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("width", [16, 48, 576])
def test_norm_and_gate_are_those_of_torch(kernels: NativeKernels, width: int) -> None:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(5, width, generator=generator) * 3
    weight = torch.rand(width, generator=generator)
    torch.testing.assert_close(
        kernels.rms_norm(hidden, weight, 1e-5), rms_norm(hidden, weight, 1e-5)
    )
    gate_up = torch.randn(5, 2 * width, generator=generator) * 30
    torch.testing.assert_close(kernels.gated(gate_up), gated(gate_up), atol=1e-5, rtol=1e-5)


def test_a_state_that_is_no_number_stays_none(kernels: NativeKernels) -> None:
    broken = torch.full((1, 32), float("nan"))
    assert kernels.rms_norm(broken[:, :16], torch.ones(16), 1e-5).isnan().all()
    assert kernels.gated(broken).isnan().all()


@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize(
    ("num_heads", "kv_heads", "head_dim"),
    [(6, 2, 16), (4, 4, 16), (9, 3, 64), (8, 2, 64), (4, 1, 128), (2, 1, 96)],
)
def test_attention_and_kv_are_those_of_torch(
    kernels: NativeKernels, num_heads: int, kv_heads: int, head_dim: int, window: int | None
) -> None:
    shape = replace(
        SHAPE, num_heads=num_heads, num_kv_heads=kv_heads, head_dim=head_dim, window=window
    )
    qkv = random_qkv(shape, sum(len(span.token_ids) for span in mixed_spans()))
    ours, our_slots = attended(shape, mixed_spans(), qkv, is_native=True)
    theirs, their_slots = attended(shape, mixed_spans(), qkv, is_native=False)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(our_slots.keys[0], their_slots.keys[0])
    assert torch.equal(our_slots.values[0], their_slots.values[0])


def test_a_window_is_counted_in_the_entries_of_a_sparse_view(kernels: NativeKernels) -> None:
    shape = replace(SHAPE, window=6)
    spans = [Span(slot=1, start=20, token_ids=[1])]
    qkv = random_qkv(shape, 1)
    ours, _ = attended(shape, spans, qkv, is_native=True, skipped=40)
    theirs, _ = attended(shape, spans, qkv, is_native=False, skipped=40)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    "span",
    [
        Span(slot=3, start=CONTEXT - 1, token_ids=[1, 2]),
        Span(slot=3, start=CONTEXT - 30, token_ids=[1] * 40),
        Span(slot=4, start=0, token_ids=[1]),
    ],
    ids=["a short span", "a long span", "a slot that is not there"],
)
def test_nothing_is_written_beyond_the_slots(kernels: NativeKernels, span: Span) -> None:
    shape = replace(SHAPE, max_positions=2 * CONTEXT)
    qkv = random_qkv(shape, len(span.token_ids))
    with pytest.raises(IndexError, match="slots"):
        attended(shape, [span], qkv, is_native=True)


def test_a_row_is_attended_alone_as_among_others_to_the_last_bit(kernels: NativeKernels) -> None:
    spans = mixed_spans()[:3]
    qkv = random_qkv(SHAPE, sum(len(span.token_ids) for span in spans))
    together, _ = attended(SHAPE, spans, qkv, is_native=True)
    first = 0
    for span in spans:
        rows = slice(first, first + len(span.token_ids))
        alone, _ = attended(SHAPE, [span], qkv[rows], is_native=True)
        assert torch.equal(alone, together[rows])
        first = rows.stop


def test_a_path_of_a_tree_is_attended_as_the_chain_it_is_to_the_last_bit(
    kernels: NativeKernels,
) -> None:
    path = [0, 2, 5]
    tree = Span(slot=0, start=30, token_ids=[1] * len(TREE), parents=TREE)
    qkv = random_qkv(SHAPE, len(TREE))
    whole, _ = attended(SHAPE, [tree], qkv, is_native=True)
    chain = Span(slot=0, start=30, token_ids=[1] * len(path))
    alone, _ = attended(SHAPE, [chain], qkv[path], is_native=True)
    assert torch.equal(whole[path], alone)


def test_threads_share_a_pass_and_change_no_bit_of_it(kernels: NativeKernels) -> None:
    spans = [Span(slot=slot, start=40, token_ids=[1] * 25) for slot in range(4)]
    qkv = random_qkv(SHAPE, 100)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone, _ = attended(SHAPE, spans, qkv, is_native=True)
        torch.set_num_threads(2)
        shared, _ = attended(SHAPE, spans, qkv, is_native=True)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(alone, shared)


def test_every_method_answers_on_the_kernels_as_a_cacheless_reference_does(
    kernels: NativeKernels,
) -> None:
    target = random_decoder(3, VOCAB, head_dim=16)
    settings = [OFF, *settings_under_test()]
    asked = dict(zip(map(str, itertools.count()), settings, strict=False))
    prompt_ids = dict(zip(asked, prompts(len(asked), VOCAB), strict=True))
    engine = small_engine(target=target, vocab_size=VOCAB)
    deltas = engine.run(
        [
            request(name, prompt_ids[name], setting=setting, max_tokens=12)
            for name, setting in asked.items()
        ]
    )
    for name, ids in prompt_ids.items():
        assert tokens_of(deltas[name]) == greedy_reference(target, ids, 12), asked[name]


def test_the_source_is_compiled_once_for_a_machine(kernels: NativeKernels, tmp_path: Path) -> None:
    first = compiled(tmp_path)
    assert first is not None
    made_at = first.stat().st_mtime_ns
    assert compiled(tmp_path) == first
    assert first.stat().st_mtime_ns == made_at
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


def test_code_that_others_could_have_written_is_not_run(
    kernels: NativeKernels, tmp_path: Path
) -> None:
    library = compiled(tmp_path)
    assert library is not None
    library.write_bytes(b"not ours")
    library.chmod(0o777)
    assert compiled(tmp_path) == library
    assert library.read_bytes() != b"not ours"
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="others can write"):
        compiled(tmp_path)


def test_nothing_is_compiled_where_there_is_no_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compiled(tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_a_damaged_library_is_compiled_anew(kernels: NativeKernels, tmp_path: Path) -> None:
    library = compiled(tmp_path)
    assert library is not None
    library.write_bytes(b"")
    assert loaded_from(tmp_path) is not None
    assert library.stat().st_size > 0


def test_a_broken_compiler_is_passed_over(
    kernels: NativeKernels, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "bin" / "cc"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(native, "_COMPILERS", ("cc",))
    with pytest.raises(subprocess.CalledProcessError):
        compiled(tmp_path / "kernels")
    working = next(filter(None, map(shutil.which, ("gcc", "clang"))), None)
    if working is None:
        pytest.skip("only one C compiler is here")
    monkeypatch.setattr(native, "_COMPILERS", ("cc", Path(working).name))
    assert compiled(tmp_path / "kernels") is not None


def test_torch_computes_where_nobody_knows_a_place_for_a_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(native, "default_cache_dir", homeless)
    assert native._loaded.__wrapped__() is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: native_kernels(torch.device("meta"), torch.float32),
        lambda: native_kernels(CPU, torch.bfloat16),
        lambda: native_kernels(CPU, torch.float32, 64, 40),
    ],
    ids=["another device", "another dtype", "an odd width"],
)
def test_torch_computes_what_the_kernels_cannot(make: Callable[[], object]) -> None:
    assert make() is None


def test_narrow_heads_are_attended_by_torch() -> None:
    shape = replace(SHAPE, head_dim=8)
    batch = lay_out(mixed_spans(), MaskKind(device=CPU, dtype=torch.float32))
    qkv = random_qkv(shape, len(batch.token_ids))
    slots = filled_slots(shape)
    work = LayerPass(batch, slots, shape, rotation_table(shape, CPU))
    output = work.attend(0, qkv)
    queries = qkv[:, : shape.num_heads * 8].view(-1, shape.num_heads, 8)
    assert torch.equal(output, PassAttention(batch, slots, shape.num_heads)(0, queries))
