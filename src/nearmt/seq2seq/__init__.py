"""The only room that knows transformers: a Hugging Face encoder–decoder as token ids, states and logits."""

from nearmt.seq2seq.decoding import DecodingSession, StepOutput
from nearmt.seq2seq.identity import ModelIdentity
from nearmt.seq2seq.model import ForcedTokens, Seq2Seq
from nearmt.seq2seq.rules import DecodingRules

__all__ = ["DecodingRules", "DecodingSession", "ForcedTokens", "ModelIdentity", "Seq2Seq", "StepOutput"]
