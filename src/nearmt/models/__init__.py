"""The only room that knows transformers: a Hugging Face encoder–decoder as token ids, states and logits."""

from nearmt.models.engine import DecodingSession, StepOutput
from nearmt.models.identity import ModelIdentity
from nearmt.models.logit_rules import DecodingRules
from nearmt.models.model import ForcedTokens, Seq2Seq

__all__ = ["DecodingRules", "DecodingSession", "ForcedTokens", "ModelIdentity", "Seq2Seq", "StepOutput"]
