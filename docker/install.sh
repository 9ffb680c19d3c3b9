#!/usr/bin/env bash
# Install built wheels into a new environment:  docker/install.sh ENVIRONMENT WHEELS PACKAGE...
#
#   docker/install.sh /opt/nearmt /wheels 'nearmt[server]'
#
# Packages named here come from the folder WHEELS and never from a package index; their dependencies come from the
# index, in the versions of constraints.txt. Set TORCH_INDEX to install torch from another index, such as PyTorch's
# index of CPU builds, which leaves out several gigabytes of CUDA libraries.
set -euo pipefail
constraints=$(cd "$(dirname "$0")/.." && pwd)/constraints.txt
environment=$1 wheels=$2
shift 2

files=()
for package in "$@"; do
    name=${package%%[*} extras=
    [ "$name" = "$package" ] || extras=[${package#*[}
    found=("$wheels/${name//-/_}"-[0-9]*.whl)
    if [ ${#found[@]} -ne 1 ] || [ ! -f "${found[0]}" ]; then
        echo "install: $wheels must hold exactly one wheel of $name" >&2
        exit 1
    fi
    files+=("${found[0]}$extras")
done

"${PYTHON:-python3}" -m venv "$environment"
install=("$environment/bin/python" -m pip install --disable-pip-version-check --quiet)
# torch comes first and by its exact version, so that nothing else chooses another build of it.
"${install[@]}" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep '^torch==' "$constraints")"
"${install[@]}" -c "$constraints" "${files[@]}"
"$environment/bin/python" -m pip check
