"""Scores and comparisons: BLEU, chrF, TER, paired bootstrap, leakage, similarity to a memory, methods on one test set.

The only package that imports sacrebleu.
"""
