"""Scores and comparisons: BLEU, chrF, paired bootstrap, test-set leakage, and methods compared on one test set.

The only package that imports sacrebleu.
"""
