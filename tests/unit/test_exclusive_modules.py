"""One module, several wrappers and threads: results as if each were alone, and the module as it was whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from sys import getswitchinterval, setswitchinterval
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import headscope
from headscope.models import modules, tokens
from headscope.models.modules import exclusive

from .conftest import TINY, hooks

RUNS = 12
INPUTS = [[5, 17, 5, 42, 9, 23, 77, 12], [3, 99, 4, 15, 16, 23, 42, 8, 60, 61, 62]]


def maps(model: headscope.Model, ids: list[int], dtype: Any = "float32") -> Any:
    """Return the weights of one analysis."""
    return headscope.analyze(model, token_ids=ids, lenses=("weights",), measures=(), dtype=dtype).maps["weights"]


def at_once(*tasks: Callable[[], Any], runs: int = RUNS) -> list[list[Any]]:
    """Run each task several times in a thread of its own, all threads at a time, and return what each gave."""
    found: list[list[Any]] = [[] for _ in tasks]
    start = threading.Barrier(len(tasks))

    def work(place: int) -> None:
        start.wait()
        for _ in range(runs):
            try:
                found[place].append(tasks[place]())
            except Exception as error:  # noqa: BLE001 - compared with what a task gives alone
                found[place].append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("second", ["same module", "its body", "shared configuration"])
def test_wrappers_exclude_each_other(second: str) -> None:
    """Two threads with a wrapper each: every map is the one that the wrapper gives alone, to the last bit, and the module still runs."""
    torch.manual_seed(0)
    module = TINY["gpt2"]().to(torch.bfloat16).eval()
    other = {
        "same module": module,
        "its body": module.transformer,
        "shared configuration": GPT2LMHeadModel(module.config),
    }[second]
    models = [headscope.load(module), headscope.load(other)]
    before, output = module.config._attn_implementation, module(torch.tensor([INPUTS[0]])).logits
    types: list[Any] = ["float32", "float64"]
    alone = [maps(*given) for given in zip(models, INPUTS, types, strict=True)]
    found = at_once(lambda: maps(models[0], INPUTS[0]), lambda: maps(models[1], INPUTS[1], "float64"))
    for expected, several in zip(alone, found, strict=True):
        assert [np.array_equal(expected, one) for one in several] == [True] * RUNS
    assert module.config._attn_implementation == before
    assert torch.equal(module(torch.tensor([INPUTS[0]])).logits, output)


def test_locks_that_are_held_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that holds a module gets it again without a look at its parts, until it releases it."""
    module = TINY["gpt2"]()
    with exclusive(module):
        monkeypatch.setattr(modules, "configurations", None)
        with exclusive(module):
            pass
    with pytest.raises(TypeError), exclusive(module):
        pass


def test_one_tokenizer_in_two_threads(minilm: headscope.Model) -> None:
    """Cutting one text does not cut another that is read at the same time."""
    tokenizer, switching = minilm.tokenizer, getswitchinterval()
    text = "one two three four five six seven eight nine ten"
    assert tokenizer is not None
    setswitchinterval(1e-6)  # so that threads take turns in the middle of a call
    try:
        cut, uncut = at_once(
            lambda: len(tokens.encode(tokenizer, text, max_tokens=4).tokens),
            lambda: len(tokens.encode(tokenizer, text).tokens),
            runs=1000,
        )
    finally:
        setswitchinterval(switching)
    assert (set(cut), set(uncut)) == ({4}, {12})


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, MemoryError])
def test_everything_is_restored(error: type[BaseException]) -> None:
    """After an exception in the middle of a pass: implementations of sub-models, eval mode part by part, types, hooks, gradients, and the lock."""
    torch.manual_seed(0)
    module = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=32, vocab_size=100)).to(torch.bfloat16).train()
    module.transformer.h[0].eval()
    module.transformer.wte.weight.requires_grad_(False)
    model = headscope.load(module)
    maps(model, INPUTS[0])
    before = _state(module)

    def fail(part: Any, args: Any, output: Any) -> None:
        raise error

    handle = module.transformer.h[1].attn.register_forward_hook(fail)
    with pytest.raises((error, headscope.errors.HeadscopeError)):
        maps(model, INPUTS[0])
    handle.remove()
    assert _state(module) == before
    free = threading.Thread(target=lambda: maps(model, INPUTS[0]))
    free.start()
    free.join(30)
    assert not free.is_alive()


def _state(module: Any) -> list[Any]:
    parameters = [(tensor.dtype, tensor.data_ptr(), tensor.requires_grad) for tensor in module.parameters()]
    parts = [(part.training, hooks(part)) for part in module.modules()]
    return [*parameters, *parts, dict(vars(module.config))]


def test_a_model_that_writes_keeps_the_mode_of_every_part() -> None:
    """Parts that were set to eval mode in a model that trains stay so when the model continues a text."""
    torch.manual_seed(0)
    module = TINY["gpt2"]().train()
    module.transformer.h[0].eval()
    before = [part.training for part in module.modules()]
    headscope.load(module).encode(token_ids=INPUTS[0], generate=headscope.models.generation.Generate(max_new_tokens=2))
    assert [part.training for part in module.modules()] == before


def test_sub_models_keep_their_own_implementation() -> None:
    """Whose encoder attends otherwise than its decoder gets each back."""
    from transformers import BertConfig, EncoderDecoderConfig, EncoderDecoderModel

    shape = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16, "vocab_size": 50}
    config = EncoderDecoderConfig.from_encoder_decoder_configs(
        BertConfig(**shape, intermediate_size=16), BertConfig(**shape, intermediate_size=16)
    )
    config.decoder_start_token_id, config.pad_token_id = 1, 0
    module = EncoderDecoderModel(config)
    module.encoder.set_attn_implementation("eager")
    module.decoder.set_attn_implementation("sdpa")
    before = [module.encoder.config._attn_implementation, module.decoder.config._attn_implementation]
    headscope.analyze(headscope.load(module), token_ids=[5, 6, 7], target_ids=[1, 8], kind="cross", lenses=("weights",))
    assert [module.encoder.config._attn_implementation, module.decoder.config._attn_implementation] == before


def test_modules_apart_do_not_wait_for_each_other() -> None:
    """The lock is the module's: another thread uses a second module while the first is in use."""
    first, second = TINY["gpt2"](), TINY["gpt2"]()
    done = threading.Event()

    def use() -> None:
        with exclusive(second):
            done.set()

    with exclusive(first):
        threading.Thread(target=use).start()
        assert done.wait(30)
