"""Tiny random models with real tokenizers, one for each family, made offline and deterministically.

Weights are larger than usual at initialisation so that hypotheses differ and sentences end.
"""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from tokenizers.pre_tokenizers import ByteLevel
from torch import nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BartTokenizer,
    FSMTConfig,
    FSMTForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MarianConfig,
    MarianMTModel,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
)
from transformers.utils import logging as transformers_logging

from nearmt.models.capture import find_projection

SOURCE_TEXT = "die Tabelle ist gesperrt der Hund und das kleine Haus ein Wort nicht rot blau wir öffnen Datei"
TARGET_TEXT = "the spreadsheet is locked a dog and this small house word not red blue we open file"
SOURCE_WORDS, TARGET_WORDS = SOURCE_TEXT.split(), TARGET_TEXT.split()


def make_sentences(words: Sequence[str], count: int, *, seed: int = 0) -> list[str]:
    """Random sentences of two to nine words."""
    chooser = random.Random(seed)
    return [" ".join(chooser.choices(words, k=chooser.randint(2, 9))) + "." for _ in range(count)]


def _train_pieces(prefix: Path, sentences: Sequence[str], size: int, **options: Any) -> list[tuple[str, float]]:
    """Train a SentencePiece model into `prefix.model`; its pieces with their scores."""
    settings: dict[str, Any] = {"pad_id": -1, "bos_id": -1, "eos_id": 1, "unk_id": 0} | options
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_prefix=str(prefix),
        vocab_size=size,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        **settings,
    )
    prefix.with_name(prefix.name + ".vocab").unlink()
    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    return [(pieces.IdToPiece(i), pieces.GetScore(i)) for i in range(len(pieces))]


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def _save(model: PreTrainedModel, folder: Path, *, eos: int, scale: float, **generation: Any) -> Path:
    """Scale the weights, make EOS likely, and save the model with its generation config."""
    layer, projection = find_projection(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed" not in name and "shared" not in name and name != f"{layer}.weight":
                parameter.mul_(scale)
        # With tied embeddings, a random model repeats its last token forever unless the last norm mixes the signs.
        norms = [m for name, m in model.named_modules() if "decoder" in name and name.endswith("layer_norm")]
        norms[-1].weight.normal_(0, 1)
        spread = (projection.weight.norm(dim=1).mean()).item()
        projection.weight.mul_(1.4 / spread)
        _prefer_ending(model, projection, eos)
        bias = getattr(model, "final_logits_bias", None)
        if bias is not None:
            bias.normal_(0, 0.5)
    for option, value in generation.items():
        setattr(model.generation_config, option, value)
    was_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    model.save_pretrained(folder)
    if was_enabled:
        transformers_logging.enable_progress_bar()
    return folder


def _prefer_ending(model: PreTrainedModel, projection: nn.Linear, eos: int) -> None:
    """Turn EOS's row towards the average state until it is about as likely as the best token."""
    caught: list[torch.Tensor] = []
    hook = projection.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0].detach()))
    random_ids = torch.randint(4, 60, (6, 10))
    model.eval()(input_ids=random_ids, attention_mask=torch.ones_like(random_ids), decoder_input_ids=random_ids.flip(1))
    hook.remove()
    states = caught[0].flatten(0, 1)
    average = states.mean(dim=0)
    wanted = (states @ projection.weight.T).amax(dim=1).mean() - 0.2
    projection.weight[eos] += average * ((wanted - projection.weight[eos] @ average) / average.square().sum())


def _bart_shape(vocabulary: int, **options: Any) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "max_position_embeddings": 64,
        "dropout": 0.1,
        "init_std": 0.1,
    } | options


def make_marian(folder: Path, *, languages: tuple[str, str] = ("de", "en"), seed: int = 1) -> Path:
    """Two SentencePiece models over one vocabulary; EOS is 0, padding is last and starts the decoder."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces: dict[str, int] = {"</s>": 0, "<unk>": 1}
    for name, words in (("source", SOURCE_WORDS), ("target", TARGET_WORDS)):
        for piece, _ in _train_pieces(folder / name, make_sentences(words, 300), 90):
            pieces.setdefault(piece, len(pieces))
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
    pad = pieces.setdefault("<pad>", len(pieces))
    _write_json(folder / "vocab.json", pieces)
    names = {"source_lang": languages[0], "target_lang": languages[1]}
    _write_json(folder / "tokenizer_config.json", {"tokenizer_class": "MarianTokenizer", **names})
    torch.manual_seed(seed)
    tokens = {"pad_token_id": pad, "eos_token_id": 0, "decoder_start_token_id": pad, "forced_eos_token_id": 0}
    model = MarianMTModel(MarianConfig(**_bart_shape(len(pieces), scale_embedding=True, **tokens)))
    return _save(model, folder, eos=0, scale=4.0, bad_words_ids=[[pad]], forced_eos_token_id=0)


def make_fsmt(folder: Path, *, languages: tuple[str, str] = ("de", "en"), seed: int = 2) -> Path:
    """Two vocabularies of different size and order, and one list of merges."""
    folder.mkdir(parents=True, exist_ok=True)
    merges: list[tuple[str, str]] = []
    for side, words in (("src", SOURCE_WORDS), ("tgt", TARGET_WORDS)):
        letters = sorted({letter for word in words for letter in word} | {".", "x"})
        vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *letters, *(f"{letter}</w>" for letter in letters)]
        for word in words[:8]:
            merges += [pair for pair in _merges_of(word) if pair not in merges]
            vocabulary += [left + right for left, right in _merges_of(word)]
        vocabulary = list(dict.fromkeys(vocabulary))
        _write_json(folder / f"vocab-{side}.json", {piece: i for i, piece in enumerate(vocabulary)})
    lines = [" ".join(pair) for pair in merges]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    _write_json(folder / "tokenizer_config.json", {"tokenizer_class": "FSMTTokenizer", "langs": list(languages)})
    sizes = [len(json.loads((folder / f"vocab-{side}.json").read_text(encoding="utf-8"))) for side in ("src", "tgt")]
    torch.manual_seed(seed)
    shape = _bart_shape(0, src_vocab_size=sizes[0], tgt_vocab_size=sizes[1], langs=list(languages))
    del shape["vocab_size"]
    model = FSMTForConditionalGeneration(FSMTConfig(**shape, tie_word_embeddings=False))
    return _save(model, folder, eos=2, scale=4.0, forced_eos_token_id=2)


def _merges_of(word: str) -> list[tuple[str, str]]:
    """Merges that build a word from its left."""
    letters = [*word[:-1], word[-1] + "</w>"]
    return [("".join(letters[:i]), letters[i]) for i in range(1, len(letters))]


def make_m2m100(folder: Path, *, seed: int = 3) -> Path:
    """M2M100: language codes after the vocabulary, forced as the first token."""
    folder.mkdir(parents=True, exist_ok=True)
    words = SOURCE_WORDS + TARGET_WORDS
    pieces = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    for piece, _ in _train_pieces(folder / "sentencepiece.bpe", make_sentences(words, 300), 120):
        pieces.setdefault(piece, len(pieces))
    _write_json(folder / "vocab.json", pieces)
    tokenizer = M2M100Tokenizer(str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    size = len(pieces) + len(tokenizer.lang_code_to_id) + tokenizer.num_madeup_words
    model = M2M100ForConditionalGeneration(M2M100Config(**_bart_shape(size, scale_embedding=True)))
    return _save(model, folder, eos=2, scale=4.0, forced_eos_token_id=None)


def make_nllb(folder: Path, *, seed: int = 4) -> Path:
    """NLLB: the M2M100 model with a byte-pair tokenizer and codes such as deu_Latn."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", "▁"]
    words = [f"▁{word}" for word in SOURCE_WORDS + TARGET_WORDS + ["."]]
    merges: list[Any] = []  # pairs, though NllbTokenizer declares strings
    for word in words:
        vocabulary += list(word)
        for i in range(1, len(word)):
            merges.append((word[:i], word[i]))
            vocabulary.append(word[: i + 1])
    pieces = {piece: i for i, piece in enumerate(dict.fromkeys(vocabulary))}
    tokenizer = NllbTokenizer(vocab=pieces, merges=list(dict.fromkeys(merges)))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    model = M2M100ForConditionalGeneration(M2M100Config(**_bart_shape(len(tokenizer), scale_embedding=True)))
    return _save(model, folder, eos=2, scale=4.0)


def _unigram_pieces(folder: Path) -> list[tuple[str, float]]:
    pieces = _train_pieces(folder / "spm", make_sentences(SOURCE_WORDS + TARGET_WORDS, 300), 120)
    (folder / "spm.model").unlink()
    return [(piece, score) for piece, score in pieces if piece not in ("<unk>", "</s>")]


def make_bart(folder: Path, *, seed: int = 8) -> Path:
    """BART: bytes, `<s>` forced as the first token, no languages."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = sorted(ByteLevel.alphabet())
    pieces = {piece: i for i, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *letters, "<mask>"])}
    BartTokenizer(vocab=pieces, merges=[]).save_pretrained(folder)
    torch.manual_seed(seed)
    model = BartForConditionalGeneration(BartConfig(**_bart_shape(len(pieces))))
    return _save(model, folder, eos=2, scale=4.0, forced_bos_token_id=0, forced_eos_token_id=2)


def make_mbart(folder: Path, *, seed: int = 5) -> Path:
    """The first mBART: the target code starts the decoder."""
    return _make_mbart(folder, MBartTokenizer, seed)


def make_mbart50(folder: Path, *, seed: int = 6) -> Path:
    """mBART-50: the target code is forced as the first token."""
    return _make_mbart(folder, MBart50Tokenizer, seed)


def _make_mbart(folder: Path, tokenizer_class: Callable[..., Any], seed: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    first = ["<s>", "<pad>", "</s>", "<unk>"] if tokenizer_class is MBartTokenizer else ["<unk>", "<s>", "</s>"]
    specials = [(name, 0.0) for name in first]
    tokenizer = tokenizer_class(vocab=[*specials, *_unigram_pieces(folder)])
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    options = {"scale_embedding": True, "decoder_start_token_id": 2}
    model = MBartForConditionalGeneration(MBartConfig(**_bart_shape(len(tokenizer), **options)))
    return _save(model, folder, eos=2, scale=4.0, forced_eos_token_id=2)


def make_t5(folder: Path, *, seed: int = 7) -> Path:
    """T5: relative positions, a task prefix in the config, no forced tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    specials = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    tokenizer = T5Tokenizer(vocab=[*specials, *_unigram_pieces(folder)], extra_ids=4)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    common: dict[str, Any] = {  # fields of every configuration, which T5Config does not declare
        "decoder_start_token_id": 0,
        "tie_word_embeddings": True,
        "task_specific_params": {"translation_de_to_en": {"prefix": "translate German to English: "}},
    }
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        initializer_factor=1.0,
        **common,
    )
    return _save(T5ForConditionalGeneration(config), folder, eos=1, scale=1.5)


# Family → its maker and the languages it must be told.
FAMILIES: dict[str, tuple[Callable[[Path], Path], dict[str, Any]]] = {
    "marian": (make_marian, {}),
    "fsmt": (make_fsmt, {}),
    "m2m100": (make_m2m100, {"source_lang": "de", "target_lang": "en"}),
    "nllb": (make_nllb, {"source_lang": "de", "target_lang": "en"}),
    "mbart": (make_mbart, {"source_lang": "de", "target_lang": "en"}),
    "mbart50": (make_mbart50, {"source_lang": "de", "target_lang": "en"}),
    "bart": (make_bart, {"source_lang": "de", "target_lang": "en"}),
    "t5": (make_t5, {"source_lang": "de", "target_lang": "en"}),
}
