#!/usr/bin/env bash
# Start nearmt in the container.
#
# Without a command, or with options only: serve with $NEARMT_STORES/server.toml if there is one, else every *.store in
# $NEARMT_STORES. Anything else is a command of nearmt: `docker run nearmt info client.store`.
set -euo pipefail
stores=${NEARMT_STORES:-/stores}

case "${1:-}" in
-h | --help | --version) exec nearmt "$@" ;;
"" | -*) ;;
*) exec nearmt "$@" ;;
esac

if [ -f "$stores/server.toml" ]; then
    exec nearmt serve --config "$stores/server.toml" "$@"
fi
shopt -s nullglob
found=("$stores"/*.store)
if [ ${#found[@]} -eq 0 ]; then
    echo "nearmt: $stores holds neither server.toml nor a *.store folder: mount a volume with your stores there" >&2
    exit 2
fi
exec nearmt serve "${found[@]}" "$@"
