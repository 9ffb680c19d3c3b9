"""For comparisons: the Hugging Face model itself, and a random model of the size of opus-mt for timing engines."""

import json
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianConfig, MarianMTModel

from nearmt.models.loading import quiet

_VOCABULARY, _WIDTH, _LAYERS = 58_101, 512, 6


def load_for_generate(folder: Path) -> Any:
    """The model in float32, ready for `generate`, without its own length limit."""
    with quiet():
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.generation_config.max_length = None
    return model


def token_names(folder: Path, count: int) -> list[str]:
    """The tokenizer's names of the ids 0 … count - 1."""
    with quiet():
        names: list[str] = AutoTokenizer.from_pretrained(folder).convert_ids_to_tokens(list(range(count)))
    return names


def save_random_marian(folder: Path, vocabulary: int = _VOCABULARY, width: int = _WIDTH, layers: int = _LAYERS) -> None:
    """Save a Marian model with random weights that never predicts EOS by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    for side in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["ein kleines Haus", "der Hund und das Wort"] * 20),
            model_prefix=str(folder / side),
            vocab_size=40,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        (folder / f"{side}.vocab").unlink()
    pieces = ["</s>", "<unk>", *(f"▁word{i}" for i in range(vocabulary - 3)), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}), encoding="utf-8")
    names = {"tokenizer_class": "MarianTokenizer", "source_lang": "de", "target_lang": "en"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
    pad = vocabulary - 1
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(1)
        model = MarianMTModel(
            MarianConfig(
                vocab_size=vocabulary,
                d_model=width,
                encoder_layers=layers,
                decoder_layers=layers,
                encoder_ffn_dim=4 * width,
                decoder_ffn_dim=4 * width,
                encoder_attention_heads=max(1, width // 64),
                decoder_attention_heads=max(1, width // 64),
                max_position_embeddings=512,
                activation_function="swish",
                scale_embedding=True,
                pad_token_id=pad,
                eos_token_id=0,
                decoder_start_token_id=pad,
                forced_eos_token_id=0,
            )
        )
        with torch.no_grad():
            model.final_logits_bias.normal_(0, 0.1)
            model.final_logits_bias[0, 0] = -100.0
        model.generation_config.bad_words_ids = [[pad]]
        model.save_pretrained(folder)
