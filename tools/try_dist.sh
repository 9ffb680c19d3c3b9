#!/usr/bin/env bash
# Install the built wheels into an empty environment and run the demo there, far from the source tree:
#   tools/try_dist.sh dist
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wheels=$(cd "$1" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset PYTHONPATH

bash "$root/docker/install.sh" "$folder/environment" "$wheels" 'nearmt[paper]' nearmt-demo
cd "$folder"
"$folder/environment/bin/nearmt" --version
"$folder/environment/bin/nearmt" demo --out demo-output
test -s demo-output/report.html
echo "the wheels install into an empty environment, and the demo runs there"
