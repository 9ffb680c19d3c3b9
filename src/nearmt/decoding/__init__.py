"""Beam search over the mixture of model and neighbours, and the evidence for each output token."""
