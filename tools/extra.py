"""Print the requirements of one extra, one a line, so that they can be installed without nearmt's own dependencies.

python tools/extra.py docs > requirements.txt
"""

import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def main() -> None:
    extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    if len(sys.argv) != 2 or sys.argv[1] not in extras:
        sys.exit(f"usage: python tools/extra.py {{{','.join(extras)}}}")
    print("\n".join(extras[sys.argv[1]]))


if __name__ == "__main__":
    main()
