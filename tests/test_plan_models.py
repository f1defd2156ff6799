"""Parameters counted from the shape are the published ones; so is the arithmetic of training."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from coursekit import parallel, plan
from coursekit.plan.models import Model

CARDS = plan.models()


@pytest.mark.parametrize("name", CARDS)
def test_the_count_is_the_published_one(name: str) -> None:
    card = CARDS[name]
    assert card.parameters == pytest.approx(card.published, rel=0.01)
    assert "http" in card.source


def test_llama_has_exactly_the_parameters_of_its_files() -> None:
    assert CARDS["llama2-7b"].parameters == 6_738_415_616
    assert CARDS["llama2-70b"].parameters == 68_976_648_192


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("glu", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_the_count_is_that_of_a_real_module(kv_heads: int, glu: bool, bias: bool) -> None:
    layers, hidden, heads, ffn, vocab, positions = 3, 32, 4, 80, 50, 16
    shape = Model(
        "tiny", layers, hidden, heads, kv_heads, ffn, vocab, positions, glu=glu, bias=bias
    )
    kv = hidden // heads * kv_heads
    norm = torch.nn.LayerNorm(hidden, bias=bias)
    linear = [(hidden, hidden), (hidden, hidden), (hidden, kv), (hidden, kv), (ffn, hidden)]
    linear += [(hidden, ffn)] * (2 if glu else 1)
    block = torch.nn.ModuleList(torch.nn.Linear(*size, bias=False) for size in linear)
    count = sum(p.numel() for p in block.parameters()) + 2 * sum(
        p.numel() for p in norm.parameters()
    )
    # A bias for each output of Q, K, V, the projection and both feed-forward matrices.
    count += (2 * hidden + 2 * kv + ffn + hidden) if bias else 0
    outside = 2 * vocab * hidden + positions * hidden + sum(p.numel() for p in norm.parameters())
    assert shape.parameters == layers * count + outside


MIXTRAL, DEEPSEEK = CARDS["mixtral-8x7b"], CARDS["deepseek-v3"]
# DeepSeek-AI 2024, arXiv:2412.19437, section 4.2: queries go through 1,536 numbers, keys and values
# through 512 + 64, 128 heads of 128 + 64.
QUERIES = 7168 * 1536 + 1536 * 128 * (128 + 64)
KEYS_AND_VALUES = 7168 * (512 + 64) + 512 * 128 * (128 + 128)


@pytest.mark.parametrize("shape", [MIXTRAL, DEEPSEEK], ids=lambda shape: shape.title)
def test_what_a_token_meets_is_the_published_count(shape: Model) -> None:
    assert shape.active_parameters == pytest.approx(shape.active, rel=0.02)
    others = shape.parameters - shape.expert_parameters
    chosen = shape.expert_parameters * shape.top_k // shape.experts
    # The router scores all experts for every token: it is among the others, whole.
    assert shape.active_parameters == others + chosen


def test_the_attention_of_deepseek_is_counted_from_its_matrices() -> None:
    assert DEEPSEEK.attention == QUERIES + KEYS_AND_VALUES + 128 * 128 * 7168
    # Scores multiply 192 numbers a head, their sum over values 128.
    assert 2 * DEEPSEEK.heads_width == 128 * (128 + 64) + 128 * 128


@pytest.mark.parametrize("shape", CARDS.values(), ids=lambda shape: shape.title)
def test_arithmetic_is_six_times_what_a_token_meets_and_attention(shape: Model) -> None:
    inputs = (1 if shape.tied else 2) * shape.vocab * shape.hidden
    matrices = shape.active_matrices + inputs
    assert shape.active_parameters == pytest.approx(matrices, rel=0.001)
    one = plan.exact_flops(shape, 1, 4096) - plan.exact_flops(shape, 1, 2048)
    assert one == 3 * 4 * 2048 * (shape.heads_width or shape.hidden) * shape.layers
    # The embedding is looked up, not multiplied.
    looked_up = 0 if shape.tied else shape.vocab * shape.hidden
    rest = plan.exact_flops(shape, 1, 2048) - one
    assert rest == 6 * (matrices - looked_up)
    assert plan.train_flops(shape, 1) == 6 * shape.active_parameters


@pytest.mark.parametrize("shared", [0, 1])
@pytest.mark.parametrize("dense", [0, 2])
def test_experts_of_a_real_module_are_counted(shared: int, dense: int) -> None:
    made = parallel.Experts(32, 48, 8, 2, shared=shared)
    block = sum(p.numel() for p in made.parameters())
    routed = sum(p.numel() for p in made.each.parameters())
    plain = parallel.small(hidden=32, ffn=80)
    mixed = replace(plain, experts=8, top_k=2, expert_ffn=48, shared_experts=shared,
                    dense_layers=dense)  # fmt: skip
    mlp = sum(p.numel() for p in parallel.gpt.MLP(32, 80).parameters())
    assert mixed.moe_layers == 4 - dense
    assert mixed.parameters == plain.parameters + (4 - dense) * (block - mlp)
    assert mixed.expert_parameters == (4 - dense) * routed


def test_what_is_counted_for_equal_blocks_refuses_experts() -> None:
    for call in (
        lambda: plan.layer_flops(MIXTRAL, 4096),
        lambda: plan.dp_volume(MIXTRAL, 8),
        lambda: plan.zero_volume(DEEPSEEK, 8, 3),
        lambda: plan.local_parameters(DEEPSEEK, 8),
    ):
        with pytest.raises(plan.PlanError, match=r"no experts, got .*; of such a model"):
            call()


def test_an_impossible_shape_is_refused() -> None:
    with pytest.raises(plan.PlanError, match="from 1 to the 4 experts, got 5; try top_k=2"):
        Model("odd", 2, 96, 12, 12, 400, 1000, experts=4, top_k=5)
    with pytest.raises(plan.PlanError, match="at most the 2 layers, got 3; 0 gives every block"):
        Model("odd", 2, 96, 12, 12, 400, 1000, experts=4, top_k=2, dense_layers=3)
    with pytest.raises(plan.PlanError, match="heads must divide hidden"):
        Model("odd", 2, 100, 3, 3, 400, 1000)
    with pytest.raises(plan.PlanError, match="kv_heads must divide heads"):
        Model("odd", 2, 96, 12, 5, 400, 1000)
    with pytest.raises(plan.PlanError, match="layers must be a whole number from 1 up, got 0"):
        Model("none", 0, 96, 12, 12, 400, 1000)


def test_six_p_t_is_what_gpt3_reports() -> None:
    # Table D.1 of arXiv:2005.14165: 3.14e23.
    assert plan.train_flops("gpt3-175b", 300e9) == pytest.approx(3.14e23, rel=0.002)


@pytest.mark.parametrize("recompute", [False, True])
def test_the_exact_count_is_that_of_narayanan(recompute: bool) -> None:
    b, s, layers, h, vocab = 1536, 2048, 96, 12288, 50257
    factor, logits = (96, 16) if recompute else (72, 12)
    published = factor * b * s * layers * h**2 * (1 + s / (6 * h) + vocab / (logits * layers * h))
    ours = plan.exact_flops("gpt3-175b", b * s, s, recompute=recompute)
    assert ours == pytest.approx(published, rel=1e-12)


def test_the_rule_is_the_exact_count_without_attention() -> None:
    for name, sequence in (("llama2-7b", 4096), ("llama2-70b", 4096), ("gpt3-175b", 2048)):
        card = plan.model(name)
        attention = 12 * card.layers * sequence * card.hidden * 1e9
        exact = plan.exact_flops(card, 1e9, sequence) - attention
        assert exact == pytest.approx(plan.train_flops(card, 1e9), rel=0.03)


def test_days_are_those_that_meta_published() -> None:
    for name in ("llama2-7b", "llama2-70b"):
        card = plan.model(name)
        days = plan.days(plan.train_flops(card, card.tokens), gpus=1024)
        assert days == pytest.approx(card.gpu_hours / 24 / 1024, rel=0.1)


def test_gpus_have_peaks() -> None:
    assert plan.gpu("a100-80gb").peak == 312e12
    assert plan.gpu("a100-80gb").memory == 80e9
    with pytest.raises(plan.PlanError, match="a GPU must be one of a100-80gb"):
        plan.gpu("a100")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: plan.train_flops("llama2-7b", -1), "tokens must be a number above 0, got -1"),
        (lambda: plan.layer_flops("llama2-7b", 0), "sequence must be a whole number from 1 up"),
        (lambda: plan.days(1e20, gpus=0), "gpus must be a whole number from 1 up, got 0"),
        (lambda: plan.days(1e20, mfu=40), "mfu must be a fraction of the peak, at most 1, got 40"),
        (lambda: plan.days(1e20, peak=float("inf")), "peak must be a number above 0, got inf"),
    ],
)
def test_a_wrong_amount_is_one_clear_error(call: object, told: str) -> None:
    with pytest.raises(plan.PlanError) as error:
        call()  # type: ignore[operator]
    assert told in str(error.value)
