#!/usr/bin/env python3
"""Pack a Marian model into a sixth of its size, for the package nearmt-demo.

    pack.py Helsinki-NLP/opus-mt-fr-en OUT          # or the folder of a downloaded model

Every matrix is rounded to 8-bit integers, with one step per row: 8 % of the matrix's root mean square, or more where
the largest weight of the row would not fit. With so coarse a step most integers are small, and deflate's Huffman codes
store them in about five bits each. Everything else is rounded to float16. `nearmt_demo` unpacks the result.
"""

import argparse
import hashlib
import json
import shutil
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save
from transformers import AutoModelForSeq2SeqLM
from transformers.utils import cached_file

RELATIVE_STEP = 0.08
TOP = 127
WEIGHTS = "weights.safetensors.gz"
PUBLISHED = ("pytorch_model.bin", "model.safetensors")
COPIED = ("config.json", "generation_config.json", "source.spm", "target.spm", "tokenizer_config.json", "vocab.json")


def pack_matrix(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the integers and the step of every row; `integers * steps` is the rounded matrix."""
    wanted = RELATIVE_STEP * np.sqrt(np.mean(matrix.astype(np.float64) ** 2))
    steps = np.maximum(wanted, np.abs(matrix).max(axis=1, keepdims=True) / TOP).astype(np.float16)
    integers = np.rint(matrix / steps.astype(np.float32)).clip(-TOP, TOP)
    return integers.astype(np.int8), steps


def pack(tensors: dict[str, np.ndarray]) -> bytes:
    """Return a gzipped safetensors file with `name` and `name.step` for each matrix."""
    packed = {}
    for name, tensor in tensors.items():
        if tensor.ndim == 2 and min(tensor.shape) > 1:
            packed[name], packed[f"{name}.step"] = pack_matrix(tensor)
        else:
            packed[name] = tensor.astype(np.float16)
    # Z_FILTERED: long repetitions become references, everything else Huffman codes. 31: the gzip format.
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31, 9, zlib.Z_FILTERED)
    return deflate.compress(save(packed)) + deflate.flush()


def sha256(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="hub id or folder")
    parser.add_argument("out", type=Path)
    parser.add_argument("--revision", help="commit of the hub's repository")
    args = parser.parse_args()
    out: Path = args.out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        # Transformers leaves out what it computes itself: sinusoidal positions and tied copies.
        AutoModelForSeq2SeqLM.from_pretrained(args.model, revision=args.revision, dtype=torch.float32).save_pretrained(
            folder
        )
        tensors = load_file(f"{folder}/model.safetensors")
    (out / WEIGHTS).write_bytes(pack(tensors))
    for name in COPIED:
        shutil.copyfile(str(cached_file(args.model, name, revision=args.revision)), out / name)
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    config.pop("_name_or_path", None)
    (out / "config.json").write_text(json.dumps({**config, "dtype": "float16"}, indent=2) + "\n", encoding="utf-8")
    for name in PUBLISHED:
        original = cached_file(args.model, name, revision=args.revision, _raise_exceptions_for_missing_entries=False)
        if original is not None:
            print(f"sha256 of the published {name}: {sha256(Path(original))}")
    print(f"sha256 of {WEIGHTS}: {sha256(out / WEIGHTS)}")
    print(f"size: {sum(path.stat().st_size for path in out.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
