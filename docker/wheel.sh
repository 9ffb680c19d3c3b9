#!/usr/bin/env bash
# Build the wheel of a source tree:  docker/wheel.sh SOURCE WHEELS
set -euo pipefail
source=$1 wheels=$2

"${PYTHON:-python3}" -m pip wheel --disable-pip-version-check --no-deps --wheel-dir "$wheels" "$source"
