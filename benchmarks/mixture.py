"""The mixture on given states: numbers for other implementations to compare with, and its time.

    python benchmarks/mixture.py STORE DEV OUT.npz [ROUNDS]

256 tokens of DEV and 64 of the store's own sentences, searched without and with their own entries, and 32 made-up rows
with ties, repeats and token 0. OUT.npz has, for these 352 rows,

    kinds                       "dev", "memory" or "made"
    distances, tokens           (rows, 32): squared distances and tokens of the neighbours, nearest first
    logits                      (rows, vocabulary): the model's, with every bias

and for each K of 1, 2, 4, 8, 16 and 32 and each T of 10 and 100

    metak-K-T-w1, -b1, -w2, -b2 the weights of a network that was trained on DEV with raw distances, as in PyTorch
    metak-K-T-share             (rows,): p(0), the model's share, for the K nearest neighbours
    metak-K-T-mixture           (rows, K): the probability of each neighbour's token in the mixture
    vanilla-K-T-mixture         (rows, K): the same with λ = 0.7

in 64-bit floats, computed by definition: one p_kNN for each number of neighbours. All other tokens have p(0) · p_NMT.

Prints how far nearmt's two mixtures are from these numbers, and how long they take for 4, 64 and 256 rows of DEV, each
from logits to the log-probabilities of the whole vocabulary: milliseconds, medians of interleaved rounds. "in decoding"
is only what nearmt runs while it decodes with the int8 engine, which has summed the exponentials already. On a busy
machine, set OMP_WAIT_POLICY=PASSIVE: otherwise threads that wait for each other count as processor time.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from nearmt.methods.metak import MetaK
from nearmt.methods.mixer import Logits, Mixer
from nearmt.methods.mixture import Method, Vanilla, mix
from nearmt.methods.retrieved import Retrieved
from nearmt.retrieval.neighbors import NearArrays, Neighbors, UnfilledArrays

MAX_K, SIZES, TEMPERATURES, KNN_SHARE = 32, (1, 2, 4, 8, 16, 32), (10.0, 100.0), 0.7
DEV_ROWS, MEMORY_ROWS, MADE_ROWS, TIMED_ROWS, THREADS = 256, 64, 32, (4, 64, 256), 2


@dataclass(frozen=True)
class States:
    """Rows of several kinds, with their neighbours and the model's logits."""

    kinds: np.ndarray
    neighbors: Neighbors
    logits: torch.Tensor
    methods: dict[str, Method]

    @cached_property
    def model_probabilities(self) -> np.ndarray:
        """p_NMT in 64-bit floats."""
        return self.logits.double().softmax(dim=1).numpy()

    def first(self, rows: int) -> tuple[Neighbors, torch.Tensor]:
        """The neighbours and logits of some tokens of DEV."""
        return self.neighbors.rows(slice(rows)), self.logits[:rows].clone()


def collect(store: str, dev: str) -> States:
    """Search the neighbours, and train the networks."""
    from nearmt.building.compatibility import ModelRequest, load_model
    from nearmt.datastore import Snapshot
    from nearmt.retrieval.modes import open_retriever
    from nearmt.training.devset import DevSet, collect_cache, dev_from_pairs, held_out_blocks, load_pairs
    from nearmt.training.schedule import TrainingSettings
    from nearmt.training.train_metak import train_metak

    snapshot, rng = Snapshot.open(Path(store)), np.random.default_rng(1)
    model, retriever = load_model(snapshot.manifest, ModelRequest()), open_retriever(snapshot)
    loaded = load_pairs(Path(dev), snapshot.manifest.languages)
    dev_set = dev_from_pairs(model, snapshot, loaded.pairs, loaded.origin)
    cache = collect_cache(model, retriever, dev_set, MAX_K)
    train, held_out = cache.split(held_out_blocks(len(dev_set), 0.2))
    settings = TrainingSettings(raw_features=True)
    methods: dict[str, Method] = {}
    for k in SIZES:
        for found in train_metak(
            train.nearest(k), held_out.nearest(k), max_k=k, temperatures=TEMPERATURES, settings=settings
        ):
            methods[f"metak-{k}-{found.network.temperature:g}"] = found.network
        methods |= {f"vanilla-{k}-{t:g}": Vanilla(k, t, KNN_SHARE) for t in TEMPERATURES}
        print(f"trained for K = {k}", file=sys.stderr, flush=True)

    own = [snapshot.text(i) for i in rng.choice(snapshot.live_sentence_ids, 2 * MEMORY_ROWS, replace=False).tolist()]
    sources, targets = (
        model.tokenize_sources([pair.source for pair in own]),
        model.tokenize_targets([pair.target for pair in own]),
    )
    memory = collect_cache(model, retriever, DevSet(own, sources, targets, [None] * len(own), "memory"), MAX_K)
    full = cache.neighbors.found.all(dim=1).nonzero().squeeze(1).numpy()
    full_memory = memory.neighbors.found.all(dim=1).nonzero().squeeze(1).numpy()
    parts = [
        cache.rows(torch.from_numpy(rng.choice(full, DEV_ROWS, replace=False))),
        memory.rows(torch.from_numpy(rng.choice(full_memory, MEMORY_ROWS, replace=False))),
    ]
    made = made_neighbors(parts[0].neighbors.rows(slice(MADE_ROWS)), rng)
    states = torch.cat([parts[0].states, parts[1].states, parts[0].states[:MADE_ROWS]]).float()
    near = [*(part.neighbors for part in parts), made]
    return States(
        np.repeat(["dev", "memory", "made"], [DEV_ROWS, MEMORY_ROWS, MADE_ROWS]),
        Neighbors(
            torch.cat([part.squared_distances for part in near]),
            torch.cat([part.token_ids for part in near]),
            torch.cat([part.entry_ids for part in near]),
            torch.cat([part.found for part in near]),
        ),
        model.project(states).float().contiguous(),
        methods,
    )


def made_neighbors(near: Neighbors, rng: np.random.Generator) -> Neighbors:
    """Rows with what real neighbours have too seldom: four of each kind."""
    distances, tokens = near.squared_distances.clone(), near.token_ids.clone()
    few = torch.from_numpy(rng.integers(0, 4, tokens.shape))
    distances[:4] = distances[:4, :1]  # all tied
    distances[4:8, :8] = 0  # the query itself, eight times, with different tokens
    tokens[4:8] = torch.arange(100, 100 + MAX_K)
    distances[8:12] = 0  # everything at distance 0
    distances[12:16] = distances[12:16] / distances[12:16, -1:]  # all within 1
    tokens[16:20] = 0  # token 0 only
    tokens[20:24] = few[20:24]  # few tokens, 0 among them
    tokens[24:28] = tokens[24:28, :1]  # one token only
    distances[28:] = (distances[28:] + 1) * 1e4  # far away
    return Neighbors(distances, tokens, near.entry_ids, near.found)


def by_definition(states: States, method: Method) -> tuple[np.ndarray, np.ndarray]:
    """The model's share and the mixture of the whole vocabulary, in 64-bit floats."""
    distances = states.neighbors.squared_distances.double().numpy()[:, : method.max_k]
    tokens = states.neighbors.token_ids.numpy()[:, : method.max_k]
    if isinstance(method, MetaK):
        distinct = [[len(set(row[: i + 1])) for i in range(method.max_k)] for row in tokens.tolist()]
        w1, b1, w2, b2 = (part.detach().double().numpy() for part in method.layers.parameters())
        scores = np.tanh(np.hstack([distances, np.array(distinct)]) @ w1.T + b1) @ w2.T + b2
        chosen = np.exp(scores - scores.max(axis=1, keepdims=True))
        chosen /= chosen.sum(axis=1, keepdims=True)
        sizes, temperature = method.sizes, method.temperature
    else:
        assert isinstance(method, Vanilla)
        sizes, temperature = (0, method.k), method.temperature
        chosen = np.tile([1 - method.knn_share, method.knn_share], (len(tokens), 1))
    mixed = chosen[:, :1] * states.model_probabilities
    for number, k in enumerate(sizes):
        if k:
            weights = np.exp((distances[:, :1] - distances[:, :k]) / temperature)
            weights *= chosen[:, number : number + 1] / weights.sum(axis=1, keepdims=True)
            np.add.at(mixed, (np.arange(len(tokens))[:, None], tokens[:, :k]), weights)
    return chosen[:, 0], mixed


class NoColumns:
    """These methods need nothing of a store but the neighbours."""

    def project(self, states: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def keys_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def probabilities_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


def by_tensors(method: Method, neighbors: Neighbors, logits: torch.Tensor) -> torch.Tensor:
    """The log-probabilities of the mixture, by tensor operations; the logits are overwritten."""
    torch.log_softmax(logits, dim=1, out=logits)
    weights = method.weigh(Retrieved.at(torch.zeros(len(neighbors), 1), logits, neighbors, NoColumns()))
    return mix(logits, weights, neighbors.token_ids[:, : method.max_k])


def compiled(mixer: Mixer, neighbors: Neighbors, logits: torch.Tensor) -> torch.Tensor:
    """The same in compiled code."""
    torch.log_softmax(logits, dim=1, out=logits)
    return logits.add_(decoding(mixer, None, neighbors, logits).unsqueeze(1))


def with_exact_sum(mixer: Mixer, neighbors: Neighbors, logits: torch.Tensor) -> torch.Tensor:
    """The same from sums of exponentials that lose nothing."""
    return logits.add_(decoding(mixer, -logits.double().logsumexp(dim=1).float(), neighbors, logits).unsqueeze(1))


def decoding(mixer: Mixer, shift: torch.Tensor | None, neighbors: Neighbors, logits: torch.Tensor) -> torch.Tensor:
    """The part that decoding needs: the int8 engine knows the shift, and beam search adds the new one to few tokens."""
    near = NearArrays(
        neighbors.squared_distances.numpy(),
        neighbors.token_ids.numpy(),
        np.full(len(neighbors), neighbors.max_k),
        np.zeros((len(neighbors), neighbors.max_k), np.float32),
    )
    mixer.reorder(torch.arange(len(neighbors)))
    return mixer.mix(Logits(logits, shift, None), UnfilledArrays(near, lambda first, last: None))


def contiguous(neighbors: Neighbors, k: int) -> Neighbors:
    """The k nearest, as a search for k would return them."""
    near = neighbors.nearest(k)
    return Neighbors(
        near.squared_distances.contiguous(), near.token_ids.contiguous(), near.entry_ids.contiguous(), near.found
    )


def implementations(method: Method) -> dict[str, Callable[[Neighbors, torch.Tensor], torch.Tensor]]:
    mixer = Mixer(method, NoColumns())
    return {
        "tensors": lambda neighbors, logits: by_tensors(method, neighbors, logits),
        "compiled": lambda neighbors, logits: compiled(mixer, neighbors, logits),
    }


def largest_differences(states: States, out: Path) -> dict[str, float]:
    """Write OUT.npz; the largest difference of any probability, over all rows and methods."""
    differences: dict[str, float] = {}
    arrays = {
        "kinds": states.kinds,
        "distances": states.neighbors.squared_distances.numpy(),
        "tokens": states.neighbors.token_ids.numpy(),
        "logits": states.logits.numpy(),
    }
    for name, method in states.methods.items():
        share, mixed = by_definition(states, method)
        near = contiguous(states.neighbors, method.max_k)
        arrays[f"{name}-mixture"] = np.take_along_axis(mixed, near.token_ids.numpy(), 1)
        if isinstance(method, MetaK):
            arrays[f"{name}-share"] = share
            weights = dict(zip(("w1", "b1", "w2", "b2"), method.layers.parameters(), strict=True))
            arrays |= {f"{name}-{part}": tensor.detach().numpy() for part, tensor in weights.items()}
        exact_sum = partial(with_exact_sum, Mixer(method, NoColumns()))
        mixtures = implementations(method) | {"compiled, exact sum": exact_sum}
        for kind, mixture in mixtures.items():
            gap = np.abs(mixture(near, states.logits.clone()).double().exp().numpy() - mixed).max()
            key = f"{name.split('-')[0]}, {kind}"
            differences[key] = max(differences.get(key, 0.0), float(gap))
    np.savez(out, **arrays)  # type: ignore[arg-type]
    return differences


def times(
    states: States, name: str, rounds: int, others: Mapping[str, Callable[..., Any]] = MappingProxyType({})
) -> dict[str, Any]:
    """Milliseconds, and milliseconds of processor time, of one method. `others` take the same arguments."""
    from nearmt.experiments.bench.timing import interleaved

    method = states.methods[name]
    found: dict[str, Any] = {}
    for rows in TIMED_ROWS:
        neighbors, logits = states.first(rows)
        given, shift = logits.clone(), -logits.logsumexp(dim=1)
        mixtures: dict[str, Callable[..., Any]] = {
            **implementations(method),
            "in decoding": partial(decoding, Mixer(method, NoColumns()), shift),
            **others,
        }
        timings = interleaved(
            {label: partial(mixture, neighbors, given) for label, mixture in mixtures.items()},
            rounds,
            on_run=partial(given.copy_, logits),  # not timed
        )
        found[f"{rows} rows"] = {
            label: {
                "ms": round(1e3 * timing.median, 3),
                "processor_ms": round(1e3 * float(np.median(timing.processor)), 3),
                "spread": round(timing.spread, 2),
            }
            for label, timing in timings.items()
        }
    return found


def main() -> None:
    store, dev, out = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 21
    torch.set_num_threads(THREADS)
    states = collect(store, dev)
    with torch.inference_mode():
        results = {
            "largest_difference": largest_differences(states, Path(out)),
            "times": {name: times(states, name, rounds) for name in ("metak-32-10", "vanilla-32-10")},
        }
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    main()
