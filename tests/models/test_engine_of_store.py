"""A store records the engine that made its keys and trained its Meta-k, and is opened with the same one."""

import pytest

from nearmt.errors import SettingError, StoreMismatchError
from nearmt.evaluation.scores import bleu
from nearmt.models import Seq2Seq
from nearmt.store import Store, build
from nearmt.translator import Translator
from quick import QUICK


@pytest.fixture(scope="module")
def fast(client):
    return Seq2Seq.load(client.model, engine="int8")


@pytest.fixture(scope="module")
def fast_store(client, fast, tmp_path_factory):
    return build(
        client.memory, model=fast, out=tmp_path_factory.mktemp("fast") / "s.store", dev=client.dev, adaptation=QUICK
    )


def test_manifest_names_the_engine(client, fast_store):
    assert Store(client.store).manifest.model["engine"] == "torch"
    assert fast_store.manifest.model["engine"] == "int8"
    assert fast_store.manifest.adaptation.retrieval.engine == "int8"


def test_store_is_opened_with_its_own_engine(client, fast_store):
    assert Translator(client.store).model.engine == "torch"
    assert Translator(fast_store.folder).model.engine == "int8"
    assert Translator(fast_store.folder, engine="torch", method="base").model.engine == "torch"


def test_store_helps_the_int8_engine_as_much_as_torch(client, toy_model, fast, fast_store):
    sources, references = zip(*client.test_pairs[:40], strict=True)
    scores = [
        bleu([t.text for t in Translator(folder, model=model).translate(sources)], list(references))
        for folder, model in ((client.store, toy_model), (fast_store.folder, fast))
    ]
    assert scores[1] > scores[0] - 2


def test_network_trained_with_another_engine_is_refused(client, fast, fast_store):
    with pytest.raises(StoreMismatchError, match=r"engine torch.*engine int8.*run nearmt train"):
        Translator(client.store, model=fast)
    with pytest.raises(StoreMismatchError, match="run nearmt train"):
        Translator(fast_store.folder, engine="torch")
    tuned = Translator(client.store, model=fast, method="vanilla", k=4, temperature=10.0, knn_share=0.5)
    assert tuned.translate([client.test_pairs[0][0]])[0].text


def test_retrained_store_is_opened_with_the_engine_of_its_training(store_copy, client, fast):
    Store(store_copy).train(client.dev, model=fast, settings=QUICK)
    assert Store(store_copy).manifest.model["engine"] == "torch"
    assert Translator(store_copy).model.engine == "int8"


def test_build_resumes_only_with_the_same_engine(client, toy_model, fast, tmp_path):
    from nearmt.building.builder import Builder, BuildSettings

    Builder(tmp_path / "s.partial", toy_model, BuildSettings()).start([client.memory])
    with pytest.raises(SettingError, match="started with the engine torch: it cannot be resumed with int8"):
        Builder(tmp_path / "s.partial", fast, BuildSettings()).check_resumable([client.memory])
