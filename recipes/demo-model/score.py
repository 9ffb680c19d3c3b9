#!/usr/bin/env python3
"""Compare models and engines by BLEU and chrF: the packed model and the published one.

    score.py TEST.tsv MODEL… [--sentences 500]      # french<TAB>english on every line

A model is a hub id, a folder, or `demo` for the packed one. Decoding is beam search with nearmt's defaults.
"""

import argparse
import time
from itertools import product
from pathlib import Path

import nearmt_demo
import torch

from nearmt.datastore import Languages
from nearmt.decoding.decoder import Decoder
from nearmt.evaluation.held_out import HeldOutSet, translate_held_out
from nearmt.evaluation.scores import compare
from nearmt.models import Seq2Seq
from nearmt.training.devset import load_pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("test", type=Path)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    pairs = load_pairs(args.test, Languages("fr", "en")).pairs[: args.sentences]
    outputs: dict[str, list[str]] = {}
    for name, engine in product(args.models, ("torch", "int8")):
        model = Seq2Seq.load(nearmt_demo.model_folder() if name == "demo" else name, engine=engine)
        test = HeldOutSet.from_pairs(model, pairs)
        started = time.perf_counter()
        outputs[f"{name} {engine}"] = translate_held_out(Decoder(model), test).texts
        seconds = time.perf_counter() - started
        print(f"{name} with {engine}: {len(test)} sentences in {seconds:.0f} s", flush=True)
    result = compare(outputs, test.references, [next(iter(outputs))])
    for system, score in result.scores.items():
        print(f"{system:<60} BLEU {score.bleu:.2f}  chrF {score.chrf:.2f}  p {score.p_values}")
    print(result.bleu_signature, result.chrf_signature, sep="\n")


if __name__ == "__main__":
    main()
