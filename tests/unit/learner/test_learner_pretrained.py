"""Transformers policies, on a random language model: packing, sampling and adapters change nothing that they must not."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from learner_kit import random_language_model, random_tokenizer  # noqa: E402

from toolverse.errors import InvalidInputError, NotFoundError  # noqa: E402
from toolverse.learner.policy import PolicyModel  # noqa: E402
from toolverse.learner.pretrained import PretrainedModel, PretrainedTokenizer  # noqa: E402
from toolverse.learner.sampler import pad  # noqa: E402
from toolverse.types import user  # noqa: E402

ROWS = ([1, 2, 3, 4, 5], [6, 7], [8, 9, 10, 11, 12, 13, 14], [3])
LENGTHS = torch.tensor([len(row) for row in ROWS])


def reference_states() -> torch.Tensor:
    """Last hidden state of each row under transformers' own attention, one row at a time."""
    plain = random_language_model()
    with torch.no_grad():
        return torch.cat([plain.model(torch.tensor([row])).last_hidden_state[:, -1] for row in ROWS])


def test_packed_rows_give_what_each_row_gives_alone() -> None:
    packed = PretrainedModel.wrap(random_language_model())
    states = packed.hidden(pad(ROWS), torch.arange(4), LENGTHS - 1, LENGTHS)
    assert torch.allclose(states, reference_states(), atol=1e-5)


def test_packed_and_padded_losses_have_equal_gradients() -> None:
    targets = torch.tensor([1, 2, 3, 4])
    gradients = []
    for apart in (False, True):
        policy = PolicyModel(PretrainedModel.wrap(random_language_model()), "none")
        if apart:
            states = torch.cat(
                [
                    policy.backbone.hidden(
                        pad([row]), torch.tensor([0]), torch.tensor([len(row) - 1]), torch.tensor([len(row)])
                    )
                    for row in ROWS
                ]
            )
        else:
            states = policy.backbone.hidden(pad(ROWS), torch.arange(4), LENGTHS - 1, LENGTHS)
        (-policy.log_probs(states, targets)[0].mean()).backward()
        gradients.append({n: p.grad for n, p in policy.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    assert all(torch.allclose(g, gradients[1][n], atol=1e-5) for n, g in gradients[0].items())


def test_sampling_one_token_at_a_time_sees_the_same_states() -> None:
    net = PretrainedModel.wrap(random_language_model())
    cache = net.cache(4, 0)
    net.extend(cache, torch.arange(4), pad([row[:1] for row in ROWS]), torch.ones(4, dtype=torch.long))
    running, states = [0, 1, 2], {3: None}
    for step in range(1, 7):
        running = [k for k in running if len(ROWS[k]) > step]
        ids = torch.tensor([[ROWS[k][step]] for k in running])
        found = net.extend(cache, torch.tensor(running), ids, torch.ones(len(running), dtype=torch.long))
        for k, state in zip(running, found, strict=True):
            if len(ROWS[k]) == step + 1:
                states[k] = state
    expected = reference_states()
    for k in (0, 1, 2):
        assert torch.allclose(states[k], expected[k], atol=1e-5)


def test_adapters_start_as_the_identity_and_are_all_that_learns() -> None:
    pytest.importorskip("peft")
    net = PretrainedModel.wrap(random_language_model(), lora=2)
    states = net.hidden(pad(ROWS), torch.arange(4), LENGTHS - 1, LENGTHS)
    assert torch.allclose(states, reference_states(), atol=1e-5)
    assert all("lora" in name for name, p in net.named_parameters() if p.requires_grad)


def test_the_chat_template_continues_the_sampled_ids() -> None:
    tokenizer = PretrainedTokenizer(tokenizer=random_tokenizer())
    opening = tokenizer.opening([user("where?")])
    said = [*tokenizer.encode("left"), tokenizer.end]
    more = tokenizer.continuation([user("where?")], "left", [user("wall")])
    assert more is not None
    whole = tokenizer.opening([user("where?"), {"role": "assistant", "content": "left"}, user("wall")])
    assert [*opening, *said, *more] == whole
    assert tokenizer.decode(said) == "left"
    assert tokenizer.offsets(said) == [0, 1, 2, 3, 4, 4]


def test_missing_weights_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no usable model"):
        PretrainedModel.load(tmp_path)
    with pytest.raises(NotFoundError, match="no usable model"):
        PretrainedTokenizer(tmp_path)


@pytest.mark.parametrize("lora", [0, 2])
def test_a_model_folder_trains_and_resumes(lora: int, tmp_path: Path) -> None:
    from learner_kit import small_recipe

    from toolverse.learner.train import resume_run, train_recipe

    tokenizer = random_tokenizer()
    tokenizer.save_pretrained(tmp_path / "model")
    random_language_model(len(tokenizer)).save_pretrained(tmp_path / "model")
    recipe = small_recipe(
        policy__model=str(tmp_path / "model"),
        policy__lora=lora,
        policy__rendering="append_only",
        update__kl_coefficient=0.01,
        env__settings={"boxes": 1, "size": [5, 5], "min_pushes": 1, "max_turns": 2},
        clone__episodes=2,
        clone__epochs=1,
        episodes=2,
        held_out_episodes=2,
        evaluate_every=0,
    )
    train_recipe(recipe, tmp_path / "run", stop_after=1)
    assert resume_run(tmp_path / "run")["updates"] == 2


@pytest.mark.parametrize("lora", [0, 2])
def test_recomputing_activations_changes_no_gradient(lora: int) -> None:
    gradients = []
    for recompute in (False, True):
        net = PretrainedModel.wrap(random_language_model(), lora=lora)
        if recompute:
            net.recompute()
        policy = PolicyModel(net, "none")
        states = net.hidden(pad(ROWS), torch.arange(4), LENGTHS - 1, LENGTHS)
        policy.log_probs(states, torch.tensor([1, 2, 3, 4]))[0].sum().backward()
        gradients.append([p.grad for p in policy.parameters() if p.grad is not None])
        assert not any("checkpoint" in name for name in policy.state_dict())
    assert len(gradients[0]) == len(gradients[1]) > 0
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*gradients, strict=True))


def test_compiled_blocks_and_filled_up_lengths_change_no_state() -> None:
    net = PretrainedModel.wrap(random_language_model())
    net.compile_blocks(backend="eager")
    states = net.hidden(pad(ROWS), torch.arange(4), LENGTHS - 1, LENGTHS)
    assert torch.allclose(states, reference_states(), atol=1e-5)


def test_half_precision_samples_with_what_autocast_would_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    def states(net: PretrainedModel) -> list[torch.Tensor]:
        cache, rows = net.cache(4, 0), torch.arange(4)
        fed = net.extend(cache, rows, pad(ROWS), LENGTHS)
        return [fed, net.extend(cache, rows, torch.tensor([[5], [6], [7], [8]]), torch.ones(4, dtype=torch.long))]

    net = PretrainedModel.wrap(random_language_model(), autocast=torch.bfloat16)
    assert net.cache(1, 0).trunk.keywords["weights"]
    found = states(net)
    # The same as what the learner reads, packed: it casts every weight at every use.
    read = net.hidden(pad(ROWS), torch.arange(4), LENGTHS - 1, LENGTHS)
    assert torch.equal(found[0], read)
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(2.0)
    assert not torch.equal(states(net)[0], read), "a new cache samples with the present weights"
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(0.5)
    monkeypatch.setattr(net, "_cast_weights", dict)
    assert all(torch.equal(a, b) for a, b in zip(found, states(net), strict=True))


def test_sampling_compiles_nothing() -> None:
    torch._dynamo.reset()
    net = PretrainedModel.wrap(random_language_model())
    net.compile_blocks(backend="eager")
    torch._dynamo.utils.counters.clear()
    cache = net.cache(4, 0)
    net.extend(cache, torch.arange(4), pad(ROWS), LENGTHS)
    found = net.extend(cache, torch.tensor([1]), torch.tensor([[5]]), torch.tensor([1]))
    assert not torch._dynamo.utils.counters["frames"]
    one = torch.tensor([1])
    expected = net.hidden(pad([[6, 7, 5]]), torch.tensor([0]), one * 2, one * 3)
    assert torch._dynamo.utils.counters["frames"]["ok"] > 0
    assert torch.allclose(found, expected, atol=1e-5)


def test_models_whose_attention_is_another_are_refused() -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM, MistralConfig, MistralForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"vocab_size": 50, "num_key_value_heads": 1, "head_dim": 8}
    squeezed = Gemma2Config(**sizes, attn_logit_softcapping=50.0, final_logit_softcapping=None)
    net = PretrainedModel.wrap(Gemma2ForCausalLM(squeezed))
    with pytest.raises(InvalidInputError, match="softcap"):
        net.hidden(pad(ROWS), torch.arange(4), LENGTHS - 1, LENGTHS)
    with pytest.raises(InvalidInputError, match="logits"):
        PretrainedModel.wrap(Gemma2ForCausalLM(Gemma2Config(**sizes)))
    net = PretrainedModel.wrap(MistralForCausalLM(MistralConfig(**sizes, sliding_window=6)))
    with pytest.raises(InvalidInputError, match="a row of 7 tokens"):
        net.hidden(pad(ROWS), torch.arange(4), LENGTHS - 1, LENGTHS)
    cache, one = net.cache(1, 0), torch.tensor([0])
    net.extend(cache, one, pad([ROWS[0]]), one + 5)
    net.extend(cache, one, pad([[1]]), one + 1)
    with pytest.raises(InvalidInputError, match="a row of 7 tokens"):
        net.extend(cache, one, pad([[1]]), one + 1)


def test_logits_are_made_in_parts_and_give_the_same_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolverse.learner import policy as module

    found = []
    for most in (2**25, 300):
        monkeypatch.setattr(module, "LOGITS", most)
        policy = PolicyModel(PretrainedModel.wrap(random_language_model()), "none")
        hidden = torch.linspace(-1, 1, 40 * 32).reshape(40, 32).requires_grad_()
        logp, entropy = policy.log_probs(hidden, torch.arange(40), entropy_gradient=True)
        (logp.sum() + entropy.sum()).backward()
        weights = policy.backbone.model.get_output_embeddings().weight
        found.append((logp.detach(), entropy.detach(), hidden.grad, weights.grad))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*found, strict=True))
