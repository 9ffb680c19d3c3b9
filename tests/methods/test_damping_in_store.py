"""Training, decoding and evidence see the same running distances and damp by them in the same way."""

import numpy as np
import pytest
import torch

from nearmt.decoding.decoder import Decoder
from nearmt.decoding.evidence import explain_tokens
from nearmt.methods.retrieved import Retrieved, RunningDistance
from nearmt.retrieval.search import Retriever
from nearmt.retrieval.sentences.retriever import SentenceRetriever
from nearmt.training.devset import collect_cache, dev_from_pairs, load_pairs
from nearmt.translator import Translator
from synthetic import even_damping


def test_training_and_evidence_compute_the_same_running_distances(client, toy_model):
    translator = Translator(client.store, model=toy_model)
    pairs = load_pairs(client.test, translator.snapshot.manifest.languages).pairs[:6]
    dev = dev_from_pairs(toy_model, translator.snapshot, pairs, "test")
    assert isinstance(translator.retriever, Retriever | SentenceRetriever)
    cache = collect_cache(toy_model, translator.retriever, dev, 8)
    for sentence in range(6):
        rows = (cache.sentence_ids == sentence).nonzero().flatten()
        rows = rows[cache.positions[rows].argsort()]
        near = cache.neighbors.rows(rows)
        alone = Retrieved.at(cache.states[rows].float(), torch.zeros(len(rows), 9), near, translator.snapshot)
        both = cache.running_distance(3.0)
        torch.testing.assert_close(RunningDistance(both.mean[rows], both.length[rows]), alone.running_distance(3.0))


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_decoding_and_evidence_damp_alike(client, toy_model, scale):
    """The score of a translation is the product of the probabilities that evidence gives for its tokens."""
    translator = Translator(client.store, model=toy_model)
    network = translator.method
    texts = [source for source, _ in client.test_pairs[:6]]
    sources = toy_model.tokenize_sources(texts)
    network.damping = even_damping(-1.0, 0.0, 16.0, scale)  # every sentence is out of domain
    decoder = Decoder(toy_model, translator.retriever, network, translator.decoding)
    hypotheses, with_damping = decoder.decode(sources, texts=texts), []
    for source, text, found in zip(sources, texts, hypotheses, strict=True):
        tokens = explain_tokens(decoder, source, found[0].token_ids, text=text)
        score = sum(np.log(token.probability) for token in tokens) / len(tokens) ** 0.6
        assert found[0].score == pytest.approx(score, abs=2e-3)
        with_damping.append([token.nmt_share for token in tokens])
    network.damping = None
    without = [
        [token.nmt_share for token in explain_tokens(decoder, source, found[0].token_ids, text=text)]
        for source, text, found in zip(sources, texts, hypotheses, strict=True)
    ]
    assert sum(map(sum, with_damping)) > 5 * sum(map(sum, without)), "damping had an effect"
