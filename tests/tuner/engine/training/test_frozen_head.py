"""The chunked loss and its gradient are those of a plain cross-entropy."""

from __future__ import annotations

import torch

from tuner.engine.training.frozen_head import frozen_head_loss


def test_losses_gradients_and_best_rows_are_those_of_autograd_over_several_chunks() -> None:
    rng = torch.Generator().manual_seed(0)
    hidden = torch.randn(1100, 16, generator=rng, requires_grad=True)
    plain = hidden.detach().clone().requires_grad_()
    rows = torch.randn(40, 16, generator=rng)
    ids = torch.stack([torch.randperm(40, generator=rng)[:5] for _ in range(1100)])
    wanted = torch.rand(1100, 5, generator=rng)
    wanted[:7] = 0.0
    scale = torch.rand(1100, generator=rng)

    losses, best = frozen_head_loss(hidden, rows, ids, wanted)
    (losses * scale).sum().backward()  # type: ignore[no-untyped-call]
    logprobs = (plain @ rows.T).log_softmax(-1)
    expected = -(wanted * logprobs.gather(1, ids)).sum(-1)
    (expected * scale).sum().backward()  # type: ignore[no-untyped-call]

    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(hidden.grad, plain.grad, rtol=1e-4, atol=1e-4)
    assert torch.equal(best, logprobs.argmax(-1))
