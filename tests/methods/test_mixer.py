"""The compiled mixture gives the numbers of the tensor code, which other tests compare with NumPy references."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nearmt.methods.damping import DistanceTracker
from nearmt.methods.kernel import Kernel
from nearmt.methods.metak import MetaK
from nearmt.methods.mixer import Logits, Mixer
from nearmt.methods.mixture import Method, Uniform, Vanilla, add_knn_mass
from nearmt.methods.network import Network
from nearmt.methods.retrieved import Retrieved
from nearmt.methods.robust import Robust
from nearmt.models.topk import BLOCK
from nearmt.retrieval.neighbors import Neighbors
from synthetic import even_damping

VOCABULARY = 3 * BLOCK + 5


class Columns:
    """Stored probabilities that depend on the entry id only."""

    def project(self, states: torch.Tensor) -> torch.Tensor:
        return states

    def keys_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        raise AssertionError("not needed")

    def probabilities_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        return torch.where(entry_ids < 0, 0.0, (entry_ids % 97).float() / 96).half().float()


def methods() -> dict[str, Method]:
    torch.manual_seed(3)
    trained: list[Network] = [
        MetaK(8, 20.0, hidden=5, distance_scale=0.7),
        MetaK(8, 20.0, hidden=5, features=["counts"]),
        MetaK(6, 5.0, hidden=4, features=["distances"]),
        Robust(8, hidden=6, distance_scale=0.5, first_temperature=4.0),
    ]
    for network in trained:
        for part in network.parameters():
            torch.nn.init.normal_(part, std=0.3)
    damped = MetaK(8, 20.0, hidden=5)
    damped.damping = even_damping(0.5, 1.5, 6.0, scale=0.4)
    trained[3].damping = even_damping(0.2, 1.0, 3.0, scale=0.4)
    named: dict[str, Method] = {f"{network.name} {number}": network for number, network in enumerate(trained)}
    return {**named, "damped": damped, "vanilla": Vanilla(5, 9.0, 0.4), "uniform": Uniform(8, 9.0)}


METHODS = methods()


def neighbors_of(rng: np.random.Generator, rows: int, k: int = 8) -> Neighbors:
    counts = rng.integers(0, k + 1, rows)
    found = torch.from_numpy(np.arange(k) < counts[:, None])
    distances = np.sort(rng.exponential(30, (rows, k)).astype(np.float32), axis=1)
    last = np.take_along_axis(distances, np.maximum(counts - 1, 0)[:, None], 1)
    distances = np.where(found.numpy(), distances, np.where(counts[:, None] > 0, last, 0))
    tokens = torch.from_numpy(rng.integers(0, 6, (rows, k)) * (VOCABULARY // 6))
    entry_ids = torch.from_numpy(rng.integers(0, 1000, (rows, k))).masked_fill(~found, -1)
    return Neighbors(torch.from_numpy(distances), tokens, entry_ids, found)


def by_tensors(method: Method, tracker: DistanceTracker, logits: torch.Tensor, near: Neighbors) -> torch.Tensor:
    log_probs = logits.log_softmax(dim=1)
    retrieved = Retrieved.at(torch.zeros(len(near), 2), log_probs, near, Columns(), tracker.add(near))
    weights = method.weigh(retrieved)
    share = add_knn_mass(log_probs, weights, near.token_ids[:, : weights.neighbor_weights.shape[1]])
    return log_probs + share.unsqueeze(1)


def block_maxima(values: torch.Tensor) -> torch.Tensor:
    return torch.stack([part.amax(dim=1) for part in values.split(BLOCK, dim=1)], dim=1)


@pytest.mark.parametrize("name", list(METHODS))
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 40), knows_maxima=st.booleans())
def test_compiled_mixture_equals_the_tensor_code(name, seed, rows, knows_maxima):
    rng, method = np.random.default_rng(seed), METHODS[name]
    mixer = Mixer(method, Columns())
    damping = method.damping if isinstance(method, Network) else None
    tracker = DistanceTracker(damping.scale if damping is not None else 1.0)
    for _ in range(3):  # the running mean distance follows the beams
        parents = torch.from_numpy(rng.integers(0, rows, rows))
        near, logits = (
            neighbors_of(rng, rows),
            torch.from_numpy(rng.normal(0, 3, (rows, VOCABULARY)).astype(np.float32)),
        )
        tracker.reorder(parents)
        mixer.reorder(parents)
        expected = by_tensors(method, tracker, logits, near)
        values, maxima = logits.clone(), block_maxima(logits) if knows_maxima else None
        shift = mixer.mix(Logits(values, -logits.logsumexp(dim=1), maxima), near)
        torch.testing.assert_close(values + shift.unsqueeze(1), expected, rtol=1e-4, atol=1e-4)
        if maxima is not None:
            torch.testing.assert_close(maxima, block_maxima(values), rtol=0, atol=0)


def test_a_share_of_zero_leaves_the_model_bit_for_bit():
    rng = np.random.default_rng(1)
    near, values = neighbors_of(rng, 20), torch.randn(20, VOCABULARY)
    before, shift = values.clone(), -values.logsumexp(dim=1)
    mixer = Mixer(Vanilla(8, 10.0, 0.0), Columns())
    mixer.reorder(torch.arange(20))
    assert torch.equal(mixer.mix(Logits(values, shift, None), near), shift)
    assert torch.equal(values, before)


def test_a_method_without_compiled_code_is_known():
    assert Mixer.supports(Uniform(4, 1.0))
    assert not Mixer.supports(Kernel(4, width=3))
    assert not Mixer.supports(None)
