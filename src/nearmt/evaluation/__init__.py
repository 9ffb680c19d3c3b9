"""Scores and comparisons: BLEU, chrF, paired bootstrap, leakage, and methods side by side on one test set.

The only package that imports sacrebleu.
"""
