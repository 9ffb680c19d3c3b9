#!/usr/bin/env python3
"""BLEU and chrF of a model folder on test files, as a Markdown table for its model card.

score.py MODEL NAME=FILE.tsv[.gz] … [--limit N]
"""

import argparse
from pathlib import Path

from heldout import read_pairs
from sacrebleu.metrics import BLEU, CHRF

from nearmt.decoding.decoder import Decoder
from nearmt.models import Seq2Seq


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("tests", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--limit", type=int)
    args = parser.parse_args()
    model = Seq2Seq.load(args.model, engine="torch")
    decoder = Decoder(model)
    bleu, chrf = BLEU(force=True), CHRF()
    print("| test set | sentences | BLEU | chrF |\n|---|---:|---:|---:|")
    for test in args.tests:
        name, _, path = test.partition("=")
        pairs = read_pairs(Path(path))[: args.limit]
        outputs = decoder.texts(decoder.decode(model.tokenize_sources([source for source, _ in pairs])))
        references = [[target for _, target in pairs]]
        scores = bleu.corpus_score(outputs, references).score, chrf.corpus_score(outputs, references).score
        print(f"| {name} | {len(pairs)} | {scores[0]:.2f} | {scores[1]:.2f} |", flush=True)
    print(f"\nBLEU {bleu.get_signature()}, chrF {chrf.get_signature()}; beam 4, length penalty 0.6")


if __name__ == "__main__":
    main()
