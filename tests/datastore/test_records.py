"""The records of a manifest survive their JSON form."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmt.datastore import IndexRecord, Manifest, Recall, RetrievalSignature, TrainingRecord
from nearmt.errors import StoreDamagedError
from properties import examples

OPTIONAL = {
    "reranked": st.integers(0, 512),
    "bytes": st.integers(0, 10**12),
    "memory": st.integers(1, 10**12),
    "mapped_bytes": st.lists(st.integers(1, 10**9), min_size=1).map(tuple),
    "uri": st.just("http://localhost:19530"),
    "collection": st.just("nearmt_1_2"),
    "num_units": st.integers(0, 10**9),
    "num_at_making": st.integers(0, 10**9),
    "recall": st.builds(
        Recall,
        k=st.integers(1, 64),
        recall=st.floats(0, 1),
        mass=st.floats(0, 1),
        temperature=st.floats(0.1, 100),
        num_queries=st.integers(0, 512),
    ),
}


@examples(60)
@given(st.fixed_dictionaries({}, optional=OPTIONAL), st.booleans())
def test_an_index_record_survives_json(optional, is_chosen):
    record = IndexRecord("faiss", "IVF4,PQ8", 4, 100, {"index-1.faiss": "00"}, is_chosen=is_chosen, **optional)
    content = json.loads(json.dumps(record.as_dict()))
    assert IndexRecord.from_dict(content) == record
    required = {"kind", "factory", "num_probes", "num_entries", "files", "is_chosen"}
    assert set(content) == required | set(optional), "fields that were not given are not written"


def test_a_training_record_survives_the_manifest(store_copy):
    manifest = Manifest.load(store_copy)
    record = manifest.adaptation
    content = json.loads((store_copy / "manifest.json").read_text(encoding="utf-8"))["adaptation"]
    assert record.as_dict() == content
    assert TrainingRecord.from_dict(content) == record
    assert content["memory"] == {"sentences": record.num_sentences}
    assert content["held_out"]["adaptive_loss"] == record.held_out.losses["adaptive"]
    assert content["held_out"]["vanilla_bleu"] == record.held_out.bleu["vanilla"]


def test_unknown_fields_of_a_training_record_are_ignored(store_copy):
    content = Manifest.load(store_copy).adaptation.as_dict()
    assert TrainingRecord.from_dict({**content, "gate": {"threshold": 0.1}}) == TrainingRecord.from_dict(content)


@pytest.mark.parametrize("part", ["held_out", "retrieval", "vanilla", "trained_on"])
def test_a_manifest_that_lacks_a_part_of_its_training_is_damaged(store_copy, part, monkeypatch):
    whole = TrainingRecord.as_dict
    monkeypatch.setattr(TrainingRecord, "as_dict", lambda self: {k: v for k, v in whole(self).items() if k != part})
    Manifest.load(store_copy).changed().save(store_copy)
    with pytest.raises(StoreDamagedError, match=f"is damaged: .*{part}"):
        Manifest.load(store_copy)


def test_exact_distances_do_not_depend_on_the_index():
    flat = RetrievalSignature("Flat", 1, 0, "float16", "int8")
    reranked = replace(flat, index="IVF8,PQ8", num_probes=4, reranked=64)
    approximate = replace(reranked, reranked=0)
    assert flat.gives_same_distances(reranked)
    assert reranked.gives_same_distances(replace(reranked, num_probes=9))
    assert not flat.gives_same_distances(approximate)
    assert not approximate.gives_same_distances(replace(approximate, num_probes=9))
    assert not flat.gives_same_distances(replace(flat, keys="float32"))
    assert not flat.gives_same_distances(replace(flat, engine="torch"))
