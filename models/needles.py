"""Train models/needle, a small model that finds what a token was followed by: python -m models.needles

A line has 48 different tokens in random order, and then needles: four of them come again, each with the token that followed it before. What follows a needle can
only be told by finding its first occurrence, so it is known where a head that does so has to look. Half of the training data are random tokens that repeat with any
period; without them the model does not learn to compare tokens within thousands of steps. It takes about five minutes on one core.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

FOLDER = Path(__file__).parent / "needle"
TOKENS = 64
HAY, NEEDLES = 48, 4
LENGTH = HAY + 2 * NEEDLES
QUERIES = torch.arange(HAY, LENGTH, 2)  # where the needles come again
STEPS, RATE = 4000, 2e-3


def lines(random: torch.Generator, count: int) -> tuple[Tensor, Tensor]:
    """Return token ids [count, LENGTH], and for every one of QUERIES the place [count, NEEDLES] of the token to repeat."""
    hay = torch.rand(count, TOKENS, generator=random).argsort(1)[:, :HAY]
    places = 2 * torch.rand(count, HAY // 2, generator=random).argsort(1)[:, :NEEDLES] + 1
    needles = torch.stack([hay.gather(1, places - 1), hay.gather(1, places)], 2)
    return torch.cat([hay, needles.flatten(1)], 1), places


def _periodic(random: torch.Generator, count: int) -> tuple[Tensor, int]:
    """Return random token ids [count, LENGTH] that repeat, and their period."""
    period = int(torch.randint(6, 33, (1,), generator=random))
    once = torch.rand(count, TOKENS, generator=random).argsort(1)[:, :period]
    return once.repeat(1, LENGTH // period + 1)[:, :LENGTH], period


def train(steps: int = STEPS) -> LlamaForCausalLM:
    """Train from random weights."""
    torch.manual_seed(0)
    random = torch.Generator().manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=TOKENS, max_position_embeddings=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=4, bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    rate = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1, (step + 1) / 100) * (1 - step / steps))
    for step in range(steps):
        again, period = _periodic(random, 64)
        ids, _ = lines(random, 16)
        logits = model(torch.cat([again, ids])).logits
        loss = _loss(logits[:64, period:-1], again[:, period + 1 :]) + _loss(logits[64:, QUERIES], ids[:, QUERIES + 1])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        rate.step()
        if step % 500 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    return model.eval()


def _loss(logits: Tensor, ids: Tensor) -> Tensor:
    return cross_entropy(logits.flatten(0, 1), ids.flatten())


@torch.inference_mode()
def accuracy(model: torch.nn.Module, seed: int = 1, count: int = 1000) -> float:
    """Return the share of needles in new lines after which the model predicts the right token."""
    ids, _ = lines(torch.Generator().manual_seed(seed), count)
    return float((model(ids).logits[:, QUERIES].argmax(-1) == ids[:, QUERIES + 1]).float().mean())


if __name__ == "__main__":
    trained = train()
    trained.save_pretrained(FOLDER)
    print(f"accuracy {accuracy(trained):.4f}")
