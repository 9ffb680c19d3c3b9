"""Translation models: Hugging Face encoder–decoders as token ids, decoder states and logits.

`Seq2Seq` loads a model with its tokenizer and runs it on an engine: torch for any model, or `int8` for faster decoding
on CPUs. Only this package imports transformers, onnx and onnxruntime.
"""

from nearmt.models.engine import DecodingSession, StepOutput
from nearmt.models.identity import ModelIdentity
from nearmt.models.logit_rules import DecodingRules
from nearmt.models.model import ForcedTokens, Seq2Seq

__all__ = ["DecodingRules", "DecodingSession", "ForcedTokens", "ModelIdentity", "Seq2Seq", "StepOutput"]
