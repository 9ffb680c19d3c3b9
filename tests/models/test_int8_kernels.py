"""The compiled kernels of the int8 engine against torch."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nearmt.models.int8.kernels import attend_past, attend_source, finish_logits
from nearmt.models.topk import BLOCK, raise_maxima, topk


def finished(raw: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows, width = raw.shape
    logits, totals = torch.empty(rows, width), torch.empty(rows)
    maxima = torch.empty(rows, -(-width // BLOCK))
    arrays = (tensor.numpy() for tensor in (raw, scales, bias, logits, totals, maxima))
    finish_logits(*arrays)
    return logits, totals, maxima


def logits_of(seed: int, rows: int, width: int, spread: float) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    raw = 1000 * torch.randn(rows, width, generator=generator)
    scales = spread / 1000 * (0.5 + torch.rand(rows, generator=generator))
    return raw, scales, torch.randn(width, generator=generator)


@given(st.integers(0, 999), st.integers(1, 5), st.integers(1, 5000), st.floats(0.01, 60))
def test_one_pass_gives_logits_their_log_sum_and_block_maxima(seed, rows, width, spread):
    raw, scales, bias = logits_of(seed, rows, width, spread)
    logits, totals, maxima = finished(raw, scales, bias)
    expected = torch.addcmul(bias, raw, scales[:, None])
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(totals, logits.double().logsumexp(dim=1).float(), rtol=1e-6, atol=2e-6)
    torch.testing.assert_close(logits - totals[:, None], logits.log_softmax(dim=1), rtol=1e-5, atol=1e-5)
    padded = torch.nn.functional.pad(logits, (0, -width % BLOCK), value=-torch.inf)
    assert torch.equal(maxima, padded.view(rows, -1, BLOCK).amax(dim=2))


def test_a_row_does_not_depend_on_other_rows_or_threads():
    raw, scales, bias = logits_of(7, 64, 3000, 5.0)
    together = finished(raw, scales, bias)
    with ThreadPoolExecutor(4) as pool:
        alone = list(pool.map(lambda i: finished(raw[i : i + 1], scales[i : i + 1], bias), range(64)))
    for place, whole in enumerate(together):
        assert torch.equal(whole, torch.cat([row[place] for row in alone]))


@given(st.integers(0, 999), st.integers(1, 4), st.integers(1, 2000), st.data())
def test_topk_with_maxima_equals_topk(seed, rows, width, data):
    count = data.draw(st.integers(1, min(width, 24)))
    values, _, maxima = finished(*logits_of(seed, rows, width, 3.0))
    generator = torch.Generator().manual_seed(seed)
    # Masked values leave a maximum that is too high; raised ones need a new one.
    values[:, torch.randint(width, (min(width - count, 3),), generator=generator)] = -torch.inf
    raised = torch.randint(width, (rows, 2), generator=generator)
    values.scatter_(1, raised, 50 + torch.rand(rows, 2, generator=generator))
    raise_maxima(maxima, values, raised)
    found, places = topk(values, count, maxima)
    assert torch.equal(found, values.topk(count, dim=1).values)
    assert torch.equal(values.gather(1, places), found)
    assert all(len(set(row)) == count for row in places.tolist())


def test_topk_prefers_the_first_of_equal_values():
    values = torch.zeros(1, 300)
    assert topk(values, 3, torch.zeros(1, 3))[1].tolist() == [[0, 1, 2]]
    masked = torch.full((1, 300), -torch.inf)
    masked[0, 280] = 1.0
    found, places = topk(masked, 3, torch.ones(1, 3))
    assert found.tolist() == [[1.0, -torch.inf, -torch.inf]]
    assert len(set(places[0].tolist())) == 3


@given(
    seed=st.integers(0, 999),
    sentences=st.integers(1, 3),
    group=st.integers(1, 4),
    heads=st.integers(1, 3),
    size=st.sampled_from([2, 8, 64]),
    time=st.integers(1, 40),
)
def test_attention_to_the_source_equals_torch(seed, sentences, group, heads, size, time):
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(sentences * group, heads * size, generator=generator)
    keys, values = torch.randn(2, sentences, heads, time, size, generator=generator)
    lengths = torch.randint(1, time + 1, (sentences,), generator=generator)
    out = torch.full_like(queries, torch.nan)
    attend_source(queries.numpy(), keys.numpy(), values.numpy(), lengths.numpy(), out.numpy())
    split = queries.view(sentences, group, heads, size).transpose(1, 2)
    is_seen = (torch.arange(time) < lengths[:, None])[:, None, None, :]
    expected = torch.nn.functional.scaled_dot_product_attention(split, keys, values, attn_mask=is_seen, scale=1.0)
    torch.testing.assert_close(out, expected.transpose(1, 2).reshape_as(out), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("steps", [0, 1, 9])
def test_attention_to_the_past_reads_only_the_slots_of_the_row(steps):
    generator = torch.Generator().manual_seed(steps)
    sentences, group, heads, size, slots, first = 2, 3, 2, 16, 40, 30
    projected = torch.randn(sentences * group, 3 * heads * size, generator=generator)
    keys, values = torch.randn(2, sentences, heads, slots, size, generator=generator)
    past = torch.randint(first, (sentences * group, steps), generator=generator)
    unused = sorted(set(range(first)) - set(past.flatten().tolist()))
    keys[:, :, unused] = values[:, :, unused] = torch.nan
    out = torch.empty(sentences * group, heads * size)
    attend_past(projected.numpy(), keys.numpy(), values.numpy(), past.numpy(), first, out.numpy())
    for row in range(sentences * group):
        sentence, slot = divmod(row, group)
        query, key, value = projected[row].view(3, heads, 1, size)
        assert torch.equal(keys[sentence, :, first + slot], key[:, 0])
        assert torch.equal(values[sentence, :, first + slot], value[:, 0])
        seen = [*past[row].tolist(), first + slot]
        expected = torch.nn.functional.scaled_dot_product_attention(
            query, keys[sentence][:, seen], values[sentence][:, seen], scale=1.0
        )
        torch.testing.assert_close(out[row], expected.flatten(), rtol=1e-4, atol=1e-5)


def test_kernels_can_run_in_many_threads():
    generator = np.random.default_rng(1)
    given = [
        [generator.standard_normal(shape).astype(np.float32) for shape in [(4, 16), (2, 2, 7, 8)]] for _ in range(32)
    ]
    lengths = np.array([7, 3])

    def attend(pair: list[np.ndarray]) -> np.ndarray:
        out = np.empty_like(pair[0])
        attend_source(pair[0], pair[1], pair[1], lengths, out)
        return out

    expected = [attend(pair) for pair in given]
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(a, b) for a, b in zip(expected, pool.map(attend, given), strict=True))
