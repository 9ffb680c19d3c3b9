"""The variants of Meta-k against small NumPy references, and what they learn."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nearmt.datastore.snapshot import entries_of
from nearmt.errors import SettingError, StoreDamagedError
from nearmt.methods.kernel import Kernel
from nearmt.methods.mixture import mix
from nearmt.methods.network_file import load_network, network_bytes
from nearmt.methods.registry import VARIANTS
from nearmt.methods.retrieved import Retrieved, top_probabilities
from nearmt.methods.robust import Robust
from nearmt.retrieval.neighbors import Neighbors
from nearmt.training.cache import NeighborCache
from nearmt.training.perturbation import noisy, perturbed, without_nearest
from nearmt.training.schedule import TrainingSettings
from nearmt.training.train_variants import train_variant
from properties import examples
from synthetic import VOCABULARY, make_cache

WIDTH = 4
QUICK = TrainingSettings(steps=1200, first_check=100, learning_rate=3e-3)


@dataclass(frozen=True)
class Columns:
    keys: np.ndarray
    probabilities: np.ndarray

    def project(self, states: torch.Tensor) -> torch.Tensor:
        return states.float()

    def keys_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        return entries_of(self.keys, entry_ids)

    def probabilities_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        return entries_of(self.probabilities, entry_ids)


def random_retrieved(seed: int, rows: int = 5, max_k: int = 6) -> tuple[Retrieved, Columns, torch.Tensor]:
    """Random queries and entries; some rows lack neighbours, one has none, and some entries equal the query."""
    rng = np.random.default_rng(seed)
    columns = Columns(rng.standard_normal((40, WIDTH)).astype(np.float16), rng.random(40).astype(np.float16))
    states = torch.from_numpy(rng.standard_normal((rows, WIDTH)).astype(np.float32))
    states[0] = torch.from_numpy(columns.keys[3].astype(np.float32))
    columns.keys[4] = columns.keys[3]
    columns.probabilities[:2] = 0  # float16 rounds tiny probabilities to 0
    ids = np.stack([rng.permutation(40)[:max_k] for _ in range(rows)])
    ids[0, :2] = 3, 4
    num_found = rng.integers(1, max_k + 1, rows)
    num_found[0], num_found[1:3] = max_k, (0, 1)
    ids[np.arange(max_k) >= num_found[:, None]] = -1
    keys = columns.keys[np.maximum(ids, 0)].astype(np.float32)
    distances = torch.from_numpy(((keys - states.numpy()[:, None]) ** 2).sum(2))
    values = torch.from_numpy(rng.integers(0, VOCABULARY, 40))  # token id 0 included
    neighbors = Neighbors.sorted_from(distances, values[np.maximum(ids, 0)], torch.from_numpy(ids), max_k)
    log_probs = torch.from_numpy(3 * rng.standard_normal((rows, VOCABULARY))).float().log_softmax(1)
    return Retrieved.at(states, log_probs, neighbors, columns), columns, log_probs


def randomised(network, seed: int):
    torch.manual_seed(seed)
    with torch.no_grad():
        for part in network.parameters():
            part.normal_(std=0.5)
    return network.eval()


def make_network(name: str, max_k: int = 6, seed: int = 1):
    kind = Kernel(max_k, width=WIDTH, distance_scale=1.7) if name == "kernel" else Robust(max_k, distance_scale=1.7)
    return randomised(kind, seed)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def kernel_reference(network, retrieved, row):
    """(λ, p_i of the found neighbours) as in the paper on KSTER, with keys and queries multiplied by √s."""
    p = {name: part.numpy().astype(np.float64) for name, part in network.state_dict().items()}
    n = int(retrieved.neighbors.found[row].sum())
    root = np.sqrt(network.distance_scale)
    q = retrieved.states[row].numpy().astype(np.float64) * root
    keys = retrieved.keys[row, :n].numpy().astype(np.float64) * root
    sigma = np.exp(p["bandwidth.weight"] @ np.concatenate([q, keys.mean(0)]) + p["bandwidth.bias"])
    p_knn = softmax(-np.linalg.norm(q - keys, axis=1) / sigma)
    x = np.concatenate([q, p_knn @ keys])
    hidden = np.maximum(p["share.0.weight"] @ x + p["share.0.bias"], 0)
    return sigmoid(p["share.2.weight"] @ hidden + p["share.2.bias"])[0], p_knn


def robust_reference(network, retrieved, row):
    """(λ, p_i of the found neighbours) as in the paper on robust kNN-MT."""
    p = {name: part.numpy().astype(np.float64) for name, part in network.state_dict().items()}
    near = retrieved.neighbors
    k, n = near.max_k, int(near.found[row].sum())
    slots = [min(i, n - 1) for i in range(k)]  # missing slots repeat the last one found
    d = near.squared_distances[row].numpy().astype(np.float64)[slots] * network.distance_scale
    tokens = near.token_ids[row].tolist()
    counts = [len(set(tokens[: i + 1])) for i in slots]
    floor = 2.0**-24
    at_key = np.log(np.maximum(retrieved.stored_probabilities[row].numpy()[slots], floor))
    at_query = np.log(np.maximum(retrieved.neighbor_probabilities[row].numpy()[slots], floor))
    top = np.log(np.maximum(retrieved.top_probabilities[row].numpy(), floor))
    hidden = np.tanh(p["retrieval.0.weight"] @ np.concatenate([d, counts]) + p["retrieval.0.bias"])
    s_knn, u = p["retrieval.2.weight"] @ hidden + p["retrieval.2.bias"]
    s_nmt = (p["confidence.weight"] @ np.concatenate([top, at_key, at_query]) + p["confidence.bias"])[0]
    c = [
        (p["calibration.2.weight"] @ np.tanh(p["calibration.0.weight"] @ [a, b] + p["calibration.0.bias"]))[0]
        + p["calibration.2.bias"][0]
        for a, b in zip(at_key, at_query, strict=True)
    ]
    return sigmoid(s_knn - s_nmt), softmax((-d * sigmoid(u) + np.array(c))[:n])


REFERENCES = {"kernel": kernel_reference, "robust": robust_reference}


@pytest.mark.parametrize("name", VARIANTS)
@examples(40)
@given(seed=st.integers(0, 2**31))
def test_weights_equal_the_reference(name, seed):
    retrieved, _, _ = random_retrieved(seed)
    network = make_network(name, seed=seed)
    weights = network.weigh(retrieved)
    assert weights.sizes == (0, 6)
    for row in range(len(retrieved)):
        n = int(retrieved.neighbors.found[row].sum())
        share, p_knn = REFERENCES[name](network, retrieved, row) if n else (0.0, np.zeros(0))
        assert weights.nmt_share[row].item() == pytest.approx(1 - share, abs=1e-4)
        np.testing.assert_allclose(weights.neighbor_weights[row, :n].numpy(), share * p_knn, atol=1e-4)
        assert (weights.neighbor_weights[row, n:] == 0).all(), "a missing neighbour has weight"
        assert weights.size_probabilities[row].tolist() == pytest.approx([1 - share, share], abs=1e-4)


@pytest.mark.parametrize("name", VARIANTS)
def test_weights_sum_to_one_and_a_row_without_neighbors_is_the_model_alone(name):
    retrieved, _, log_probs = random_retrieved(3)
    weights = make_network(name).weigh(retrieved)
    assert (weights.nmt_share + weights.neighbor_weights.sum(1)).allclose(torch.ones(5), atol=1e-6)
    assert weights.nmt_share[1] == 1
    mixed = mix(log_probs.clone(), weights, retrieved.neighbors.token_ids)
    assert mixed.exp().sum(1).allclose(torch.ones(5), atol=1e-5)
    assert torch.equal(mixed[1], log_probs[1])


@pytest.mark.parametrize("name", VARIANTS)
def test_the_content_of_missing_slots_does_not_matter(name):
    retrieved, _, _ = random_retrieved(3)
    near, network = retrieved.neighbors, make_network(name)
    tokens = torch.where(near.found, near.token_ids, 7)
    junk = Retrieved(
        Neighbors(near.squared_distances, tokens, near.entry_ids, near.found),
        lambda: retrieved.states,
        lambda: torch.where(near.found.unsqueeze(2), retrieved.keys, 1e3),
        lambda: torch.where(near.found, retrieved.stored_probabilities, 0.7),
        lambda: torch.where(near.found, retrieved.neighbor_probabilities, 0.9),
        lambda: retrieved.top_probabilities,
    )
    before, after = network.weigh(retrieved), network.weigh(junk)
    torch.testing.assert_close(before.neighbor_weights, after.neighbor_weights)
    torch.testing.assert_close(before.nmt_share, after.nmt_share)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_row_depends_neither_on_its_batch_nor_on_neighbors_beyond_k(name):
    retrieved, columns, log_probs = random_retrieved(5)
    network = make_network(name, max_k=4)
    together = network.weigh(retrieved)
    assert together.neighbor_weights.shape == (5, 4)
    for row in range(5):
        part = slice(row, row + 1)
        near = retrieved.neighbors.rows(part).nearest(4)
        alone = network.weigh(Retrieved.at(retrieved.states[part], log_probs[part], near, columns))
        torch.testing.assert_close(alone.neighbor_weights, together.neighbor_weights[part], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(alone.nmt_share, together.nmt_share[part], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_gradients_are_finite_without_neighbors_and_at_distance_zero(name):
    retrieved, _, _ = random_retrieved(3)
    network = make_network(name)
    weights = network(retrieved)
    weights.neighbor_weights[:, 0].clamp_min(1e-9).log().sum().backward()
    assert all(part.grad is not None and part.grad.isfinite().all() for part in network.parameters())


@pytest.mark.parametrize("name", VARIANTS)
def test_a_saved_network_gives_the_same_weights(tmp_path, name):
    network = make_network(name)
    path = tmp_path / "network.safetensors"
    path.write_bytes(network_bytes(network))
    again = load_network(path)
    assert (again.name, again.max_k, again.settings) == (name, 6, network.settings)
    retrieved, _, _ = random_retrieved(2)
    before, after = network.weigh(retrieved), again.weigh(retrieved)
    assert torch.equal(before.neighbor_weights, after.neighbor_weights)
    assert torch.equal(before.nmt_share, after.nmt_share)
    for content in (b"", network_bytes(network)[:-3]):
        path.write_bytes(content)
        with pytest.raises(StoreDamagedError, match="network"):
            load_network(path)


def columns_for(cache: NeighborCache, probabilities: torch.Tensor | None = None) -> Columns:
    """Keys at the cached distances from the queries, all in one direction."""
    keys = torch.zeros(cache.neighbors.entry_ids.numel(), WIDTH)
    keys[:, 0] = cache.neighbors.squared_distances.flatten().sqrt()
    stored = torch.full((len(keys),), 0.5) if probabilities is None else probabilities.flatten()
    return Columns(keys.half().numpy(), stored.half().numpy())


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_learns_to_use_near_neighbors_and_not_far_ones(name):
    cache = make_cache()
    columns = columns_for(cache)
    train, held = cache.split(range(30))
    trained = train_variant(name, train, held, columns, max_k=8, settings=QUICK)
    assert trained.loss < trained.base_loss - 0.3
    shares = trained.network.weigh(held.retrieved(columns)).nmt_share
    is_near = held.neighbors.squared_distances[:, 0] < 50
    assert shares[is_near].mean() < 0.1
    assert shares[~is_near].mean() > 0.8


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_learns_to_ignore_noise(name):
    cache = make_cache(trust="noise")
    columns = columns_for(cache)
    train, held = cache.split(range(30))
    trained = train_variant(name, train, held, columns, max_k=8, settings=QUICK)
    assert trained.loss == pytest.approx(trained.base_loss, abs=0.03)
    assert trained.network.weigh(held.retrieved(columns)).nmt_share.mean() > 0.9


@pytest.mark.parametrize("where", ["at the key", "at the query"])
def test_robust_gives_less_weight_to_neighbors_with_low_model_confidence(where):
    """All distances are equal and half of the neighbours are right; only the model's confidence shows which."""
    cache = make_cache(num_tokens=2000)
    is_right = torch.rand(2000, 8) < 0.5
    tokens = torch.where(is_right, cache.gold[:, None], torch.randint(0, VOCABULARY, (2000, 8)))
    near = replace(cache.neighbors, squared_distances=torch.full((2000, 8), 50.0), token_ids=tokens)
    informative, constant = torch.where(is_right, 0.8, 0.01), torch.full((2000, 8), 0.3)
    at_key, at_query = (informative, constant) if where == "at the key" else (constant, informative)
    cache = replace(cache, neighbors=near, neighbor_probabilities=at_query)
    columns = columns_for(cache, at_key)
    train, held = cache.split(range(30))
    trained = train_variant("robust", train, held, columns, max_k=8, settings=QUICK)
    p_knn = trained.network.weigh(held.retrieved(columns)).neighbor_weights
    confident = held.retrieved(columns).stored_probabilities > 0.5
    if where == "at the query":
        confident = held.neighbor_probabilities > 0.5
    assert p_knn[confident].mean() > 5 * p_knn[~confident].mean()


@pytest.mark.parametrize("name", VARIANTS)
def test_the_loss_is_the_negative_log_likelihood_of_the_mixture(name):
    cache = make_cache()
    columns = columns_for(cache)
    train, held = cache.split(range(30))
    quick = replace(QUICK, steps=200)
    trained = train_variant(name, train, held, columns, max_k=8, settings=quick)
    rows = len(held)
    own = torch.full((rows, VOCABULARY), 0.7 / (VOCABULARY - 1))
    own[torch.arange(rows), held.gold] = 0.3
    mixed = mix(own.log(), trained.network.weigh(held.retrieved(columns)), held.neighbors.token_ids)
    assert -mixed[torch.arange(rows), held.gold].mean().item() == pytest.approx(trained.loss, abs=1e-5)
    again = train_variant(name, train, held, columns, max_k=8, settings=quick)
    assert network_bytes(again.network) == network_bytes(trained.network), "the same seed gives the same network"


@pytest.mark.parametrize("name", VARIANTS)
def test_training_does_not_depend_on_the_scale_of_distances(name):
    """Distances a thousand times as large give the same weights."""
    cache = make_cache(num_tokens=400)
    large = replace(
        cache, neighbors=replace(cache.neighbors, squared_distances=cache.neighbors.squared_distances * 1024)
    )
    results = []
    for part in (cache, large):
        columns = columns_for(part)
        train, held = part.split(range(8))
        trained = train_variant(name, train, held, columns, max_k=8, settings=replace(QUICK, steps=100))
        results.append(trained.network.weigh(held.retrieved(columns)).neighbor_weights)
    torch.testing.assert_close(*results, atol=2e-3, rtol=0.02)


@pytest.mark.parametrize("name", VARIANTS)
def test_training_ignores_neighbors_beyond_k(name):
    cache = make_cache(num_tokens=400)
    columns = columns_for(cache)
    few = replace(QUICK, steps=30, first_check=10, check_every=10)
    wide, narrow = (
        train_variant(name, *part.split(range(8)), columns, max_k=4, settings=few) for part in (cache, cache.nearest(4))
    )
    assert network_bytes(wide.network) == network_bytes(narrow.network)
    assert wide.loss == narrow.loss


def test_retrieval_dropout_drops_the_nearest_neighbor_of_some_rows():
    found = torch.tensor([[True, True, True], [True, True, True], [True, True, False], [True, False, False]])
    near = Neighbors(
        torch.tensor([[1.0, 2, 3], [1, 2, 3], [1, 2, 2], [1, 1, 1]]),
        torch.tensor([[5, 0, 7]] * 4),
        torch.where(found, torch.arange(12).view(4, 3), -1),
        found,
    )
    cache = replace(make_cache(4, 3), neighbors=near, neighbor_probabilities=torch.arange(12.0).view(4, 3))
    kept = without_nearest(cache, torch.tensor([True, False, True, True]))
    assert kept.neighbors.found.tolist() == [
        [True, True, False],
        [True] * 3,
        [True, False, False],
        [True, False, False],
    ]
    assert kept.neighbors.squared_distances.tolist() == [[2, 3, 3], [1, 2, 3], [2, 2, 2], [1, 1, 1]]
    assert kept.neighbors.entry_ids.tolist() == [[1, 2, -1], [3, 4, 5], [7, -1, -1], [9, -1, -1]]
    assert kept.neighbors.token_ids[0, :2].tolist() == [0, 7]
    assert kept.neighbor_probabilities[0, :2].tolist() == [1, 2]


def test_kernel_training_drops_the_nearest_neighbor_of_half_of_the_rows():
    cache = make_cache()
    network = Kernel(8, width=WIDTH)
    seen = perturbed(network, cache, columns_for(cache), 1, np.random.default_rng(1)).neighbors
    dropped = seen.entry_ids[:, 0] != cache.neighbors.entry_ids[:, 0]
    assert 0.45 < dropped.float().mean() < 0.55
    assert torch.equal(~seen.found[:, -1], dropped)


def test_robust_training_uses_noise_and_pseudo_neighbors_less_and_less():
    cache = replace(make_cache(trust="noise"), neighbor_probabilities=torch.rand(1500, 8))
    columns = columns_for(cache, torch.rand(len(cache), 8))
    network = Robust(8)
    plain = cache.retrieved(columns)
    seen = perturbed(network, cache, columns, 0, np.random.default_rng(1))
    has_gold = (cache.neighbors.token_ids == cache.gold[:, None]).any(1)
    assert not has_gold.all()
    first = seen.neighbors.rows(~has_gold)
    assert torch.equal(first.token_ids[:, 0], cache.gold[~has_gold]), "the gold token comes first"
    assert (first.squared_distances[:, 0] < 1).all()
    assert torch.equal(seen.stored_probabilities[~has_gold, 0], cache.gold_probability[~has_gold])
    assert torch.equal(seen.neighbor_probabilities[~has_gold, 0], cache.gold_probability[~has_gold])
    assert (seen.neighbors.squared_distances.diff(dim=1) >= 0).all()
    assert (seen.neighbors.squared_distances[has_gold] != cache.neighbors.squared_distances[has_gold]).all()
    real = seen.neighbors.entry_ids >= 0
    ids = seen.neighbors.entry_ids[real]
    assert torch.equal(seen.stored_probabilities[real], entries_of(columns.probabilities, ids)), "in the new order too"
    assert torch.equal(seen.neighbor_probabilities[real], cache.neighbor_probabilities.flatten()[ids])
    late = perturbed(network, cache, columns, 100_000, np.random.default_rng(1))
    assert torch.equal(late.neighbors.squared_distances, plain.neighbors.squared_distances)
    assert torch.equal(late.stored_probabilities, plain.stored_probabilities)
    half = perturbed(network, cache, columns, 693, np.random.default_rng(1)).neighbors
    shares = (half.entry_ids[~has_gold, 0] < 0).float().mean()
    assert 0.4 < shares < 0.6


def test_sampled_distances_are_distributed_as_with_noisy_keys():
    width, variance = 6, 0.3
    difference = torch.tensor([1.0, -2.0, 0.5, 0.0, 1.0, 0.5])
    distance = difference.square().sum()
    direct = (difference + variance**0.5 * torch.randn(100_000, width)).square().sum(1)
    drawn = noisy(distance.expand(100_000, 1), variance, width, np.random.default_rng(1))[:, 0]
    assert drawn.mean().item() == pytest.approx(direct.mean().item(), rel=0.02)
    assert drawn.std().item() == pytest.approx(direct.std().item(), rel=0.02)
    for share in (0.05, 0.5, 0.95):
        assert drawn.quantile(share).item() == pytest.approx(direct.quantile(share).item(), rel=0.03)


def test_entries_are_fetched_by_id_and_missing_ones_are_zero():
    column = np.arange(6, dtype=np.float16).reshape(3, 2)
    got = entries_of(column, torch.tensor([[2, -1], [0, 1]]))
    assert got.dtype == torch.float32
    assert got.tolist() == [[[4, 5], [0, 0]], [[0, 1], [2, 3]]]
    assert entries_of(column[:0], torch.full((2, 3), -1)).shape == (2, 3, 2)
    assert top_probabilities(torch.tensor([[0.25, 0.75]]).log())[0].tolist() == pytest.approx([0.75, 0.25] + [0] * 6)


def test_invalid_settings_are_refused():
    cache = make_cache(40)
    columns = columns_for(cache)
    train, held = cache.split(range(2))
    with pytest.raises(SettingError, match="kernel, robust"):
        train_variant("magic", train, held, columns, max_k=8)
    with pytest.raises(SettingError, match="at least two sentences"):
        train_variant("kernel", train, cache.split([])[1], columns, max_k=8)
    with pytest.raises(SettingError, match="8 neighbours"):
        train_variant("robust", train, held, columns, max_k=9)
