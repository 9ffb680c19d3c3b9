"""A small German→English model and a translation memory, as paths."""

from pathlib import Path

_HERE = Path(__file__).parent
MODEL = _HERE / "model"
MEMORY = _HERE / "data" / "memory.tsv.gz"
DEV = _HERE / "data" / "dev.tsv.gz"
TEST = _HERE / "data" / "test.tsv.gz"
