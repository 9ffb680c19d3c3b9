"""A French→English model and two translation memories to try nearmt with."""

from pathlib import Path

from nearmt_demo.model_cache import model_folder

_DATA = Path(__file__).parent / "data"
MEMORY = _DATA / "law" / "memory.tsv.gz"
DEV = _DATA / "law" / "dev.tsv.gz"
TEST = _DATA / "law" / "test.tsv.gz"

__all__ = ["DEV", "MEMORY", "TEST", "model_folder"]
