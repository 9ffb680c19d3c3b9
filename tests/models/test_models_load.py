"""Loading: identity, languages, and every way in which loading can fail."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoTokenizer

import tiny_models
from nearmt.errors import MissingExtraError, ModelError, SettingError
from nearmt.models import ModelIdentity, Seq2Seq
from nearmt.models.languages import plain_code, resolve_code, same_language


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.make_marian(tmp_path_factory.mktemp("marian") / "model")


@pytest.fixture
def copy(marian: Path, tmp_path: Path) -> Path:
    """A copy of a Marian model."""
    return Path(shutil.copytree(marian, tmp_path / "model"))


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def test_identity_names_model_layer_and_width(marian: Path) -> None:
    model = Seq2Seq.load(marian)
    identity = model.identity
    assert (identity.name, identity.architecture) == (str(marian), "MarianMTModel")
    assert (identity.key_layer, identity.width, identity.revision) == ("input of lm_head", 32, None)
    assert ModelIdentity.from_dict(json.loads(json.dumps(identity.as_dict()))) == identity
    assert "de→en" in repr(model)


def test_fingerprints_depend_on_contents_not_paths(marian: Path, copy: Path) -> None:
    first = Seq2Seq.load(marian).identity
    path = copy / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")), indent=4), encoding="utf-8")
    second = Seq2Seq.load(copy).identity
    assert (first.weights, first.tokenizer) == (second.weights, second.tokenizer)

    vocabulary = json.loads((copy / "vocab.json").read_text(encoding="utf-8"))
    vocabulary["▁a"], vocabulary["▁the"] = vocabulary["▁the"], vocabulary["▁a"]
    (copy / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    tiny_models.make_marian(copy.with_name("other"), seed=99)
    shutil.copy(copy.with_name("other") / "model.safetensors", copy)
    third = Seq2Seq.load(copy).identity
    assert third.weights != first.weights
    assert third.tokenizer != first.tokenizer


def test_cached_blob_is_fingerprinted_by_its_name(tmp_path: Path) -> None:
    from nearmt.models.identity import fingerprint_weights

    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    prints = []
    for content in ("one", "two"):
        (blobs / ("ab" * 32)).write_text(content)
        link = snapshot / "model.safetensors"
        link.unlink(missing_ok=True)
        link.symlink_to(blobs / ("ab" * 32))
        prints.append(fingerprint_weights([link]))
    assert prints[0] == prints[1]


def test_loading_and_decoding_are_silent(marian: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = Seq2Seq.load(marian)
    sources = model.tokenize_sources(["der Hund " * 300, "der Hund"])
    model.force_decode(sources[1:], model.tokenize_targets(["a dog"]))
    assert capfd.readouterr() == ("", "")


def test_source_prefix_is_added_to_every_text(tmp_path: Path) -> None:
    folder = tiny_models.make_t5(tmp_path)
    given = Seq2Seq.load(folder, source_prefix="red ")
    assert given.tokenize_sources(["der Hund"]) == Seq2Seq.load(folder).tokenize_sources(["red der Hund"])
    assert Seq2Seq.load(folder).source_prefix is None
    assert Seq2Seq.load(folder, source_lang="de", target_lang="fr").source_prefix is None
    assert Seq2Seq.load(folder, source_lang="de-AT", target_lang="eng").source_prefix == "translate German to English: "


def test_marian_model_with_many_targets_needs_a_target(copy: Path) -> None:
    vocabulary = json.loads((copy / "vocab.json").read_text(encoding="utf-8"))
    taken = [piece for piece, token in vocabulary.items() if token in (5, 6)]
    vocabulary = {{taken[0]: ">>fra<<", taken[1]: ">>spa<<"}.get(p, p): i for p, i in vocabulary.items()}
    (copy / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    edit(copy / "tokenizer_config.json", source_lang="en", target_lang="ROMANCE")
    with pytest.raises(ModelError, match="several languages: set `target_lang`"):
        Seq2Seq.load(copy)
    model = Seq2Seq.load(copy, target_lang="es-MX")
    assert (model.source_lang, model.target_lang) == ("en", "es")
    assert model.tokenize_sources(["der Hund"])[0][0] == vocabulary[">>spa<<"]


def test_languages_of_marian_may_come_from_its_name(copy: Path) -> None:
    edit(copy / "tokenizer_config.json", source_lang=None, target_lang=None)
    folder = copy.rename(copy.with_name("opus-mt-tc-big-fi-en"))
    model = Seq2Seq.load(folder)
    assert (model.source_lang, model.target_lang) == ("fi", "en")


def test_language_arguments_may_repeat_but_not_contradict(marian: Path) -> None:
    assert Seq2Seq.load(marian, source_lang="de-CH", target_lang="eng").target_lang == "en"
    with pytest.raises(ModelError, match="has 'de' as its source language, not 'fr'"):
        Seq2Seq.load(marian, source_lang="fr")
    with pytest.raises(ModelError, match="has 'en' as its target language, not 'de'"):
        Seq2Seq.load(marian, target_lang="de")


def test_multilingual_model_needs_both_languages(tmp_path: Path) -> None:
    folder = tiny_models.make_nllb(tmp_path)
    with pytest.raises(ModelError, match="set `source_lang` and `target_lang`"):
        Seq2Seq.load(folder, source_lang="de")
    with pytest.raises(ModelError, match=r"does not know the language 'xq'; similar codes are \w+_\w+"):
        Seq2Seq.load(folder, source_lang="de", target_lang="xq")
    model = Seq2Seq.load(folder, source_lang="deu_latn", target_lang="zh-TW")
    assert (model.source_lang, model.target_lang) == ("de", "zh-Hant")
    assert model.token_texts(model.forced_prefix) == ["zho_Hant"]


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model folder .* does not exist"):
        Seq2Seq.load(tmp_path / "nothing")
    with pytest.raises(ModelError, match=r"config\.json"):
        Seq2Seq.load(tmp_path)


def test_unreachable_hub_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot load the model nobody/nothing-at-all"):
        Seq2Seq.load("nobody/nothing-at-all", offline=True)


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_other_kinds_of_model_are_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(ModelError, match=f"is a {kind} model, not an encoder–decoder"):
        Seq2Seq.load(tmp_path)


def test_damaged_files_are_refused(copy: Path) -> None:
    weights = copy / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:1000])
    with pytest.raises(ModelError, match="cannot load the weights"):
        Seq2Seq.load(copy)
    weights.unlink()
    with pytest.raises(ModelError, match="has no weights"):
        Seq2Seq.load(copy)
    weights.write_bytes(content)
    (copy / "vocab.json").write_text("{")
    with pytest.raises(ModelError, match="cannot load the tokenizer"):
        Seq2Seq.load(copy)
    (copy / "config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot read the config"):
        Seq2Seq.load(copy)


def test_incomplete_weights_are_refused(copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(copy / "model.safetensors")
    del weights["model.decoder.layers.1.fc1.weight"]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"incomplete: model\.decoder\.layers\.1\.fc1\.weight"):
        Seq2Seq.load(copy)


def test_weights_in_pytorch_form_are_read(copy: Path) -> None:
    from safetensors.torch import load_file

    torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    assert Seq2Seq.load(copy).width == 32


def test_missing_package_is_named(marian: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ImportError("MarianTokenizer requires the SentencePiece library but it was not found")

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", fail)
    with pytest.raises(MissingExtraError, match="pip install sentencepiece"):
        Seq2Seq.load(marian)


def test_model_that_changes_its_logits_is_refused(marian: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import MarianMTModel

    forward = MarianMTModel.forward

    def scaled(self: nn.Module, *inputs: Any, **options: Any) -> Any:
        output = forward(self, *inputs, **options)
        output.logits = output.logits * 0.5
        return output

    monkeypatch.setattr(MarianMTModel, "forward", scaled)
    with pytest.raises(ModelError, match="changes its logits after the output projection"):
        Seq2Seq.load(marian)


def test_model_that_cannot_step_is_refused(marian: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import MarianMTModel

    def fail(self: nn.Module) -> nn.Module:
        raise AttributeError("no encoder of its own")

    monkeypatch.setattr(MarianMTModel, "get_encoder", fail)
    with pytest.raises(ModelError, match="cannot be decoded step by step: no encoder of its own"):
        Seq2Seq.load(marian)


def test_unsupported_decoding_options_are_refused(copy: Path) -> None:
    edit(copy / "generation_config.json", encoder_no_repeat_ngram_size=3)
    with pytest.raises(ModelError, match="sets encoder_no_repeat_ngram_size"):
        Seq2Seq.load(copy)


def test_wrong_device_and_dtype_are_settings_errors(marian: Path) -> None:
    with pytest.raises(SettingError, match="`dtype` must be one of"):
        Seq2Seq.load(marian, dtype="int3")
    with pytest.raises(SettingError, match="unknown `device`"):
        Seq2Seq.load(marian, device="abacus")


NLLB = ["deu_Latn", "eng_Latn", "zho_Hans", "zho_Hant", "arb_Arab", "nob_Latn", "srp_Cyrl", "kas_Arab", "kas_Deva"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("de", "deu_Latn"),
        ("de-AT", "deu_Latn"),
        ("ger", "deu_Latn"),
        ("DEU-latn", "deu_Latn"),
        ("zh", "zho_Hans"),
        ("zh-Hant", "zho_Hant"),
        ("zh-HK", "zho_Hant"),
        ("ar", "arb_Arab"),
        ("no", "nob_Latn"),
        ("ks-Deva", "kas_Deva"),
    ],
)
def test_codes_are_resolved(wanted: str, expected: str) -> None:
    assert resolve_code(wanted, NLLB, model="m") == expected


def test_ambiguous_and_contradicting_codes_are_refused() -> None:
    with pytest.raises(ModelError, match="more than one code for 'ks': kas_Arab, kas_Deva"):
        resolve_code("ks", NLLB, model="m")
    with pytest.raises(ModelError, match="does not know"):
        resolve_code("sr-Latn", NLLB, model="m")


def test_plain_codes() -> None:
    assert plain_code("deu_Latn", NLLB) == "de"
    assert plain_code("zho_Hans", NLLB) == "zh-Hans"
    assert plain_code("de_DE", ["de_DE", "en_XX"]) == "de"
    assert plain_code("pt-br") == "pt-BR"
    assert same_language("pt-BR", "por")
    assert not same_language("de", "nl")
