"""Paths of a small German→English model and of two translation memories."""

from pathlib import Path

_HERE = Path(__file__).parent
MODEL = _HERE / "model"
DATA = _HERE / "data"
MEMORY = DATA / "libreoffice" / "memory.tsv.gz"
DEV = DATA / "libreoffice" / "dev.tsv.gz"
TEST = DATA / "libreoffice" / "test.tsv.gz"
