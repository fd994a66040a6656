#!/usr/bin/env bash
# Build Horovod 0.28.1 against the torch that a Python has, into a folder for wheels; minutes of compiling.
#
#     bash tests/horovod/build.sh PYTHON WHEELS
#
# PYTHON is that of a virtual environment with torch, which gets the build tools and the wheel. A wheel that is in
# WHEELS already is taken as it is. Needs a C++17 compiler. As released Horovod asks for C++14, which torch refuses.
set -euo pipefail
python=$1 wheels=$2 version=0.28.1
mkdir -p "$wheels"
wheels=$(cd "$wheels" && pwd)
"$python" -m pip install -q "cmake<4" "setuptools<81" wheel packaging cloudpickle psutil pyyaml cffi ninja
if ! ls "$wheels"/horovod-$version-*.whl >/dev/null 2>&1; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    "$python" -m pip download -q --no-deps --no-build-isolation --no-binary :all: -d "$folder" "horovod==$version"
    tar -xzf "$folder/horovod-$version.tar.gz" -C "$folder"
    source=$folder/horovod-$version
    sed -i 's/set(CMAKE_CXX_STANDARD 14)/set(CMAKE_CXX_STANDARD 17)/' "$source/CMakeLists.txt" "$source/horovod/torch/CMakeLists.txt"
    PATH=$(dirname "$("$python" -c 'import sys; print(sys.executable)')"):$PATH \
        HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 \
        HOROVOD_WITHOUT_MXNET=1 MAKEFLAGS=${MAKEFLAGS:--j3} \
        "$python" -m pip wheel -q --no-deps --no-build-isolation -w "$wheels" "$source"
fi
"$python" -m pip install -q --no-deps "$wheels"/horovod-$version-*.whl
