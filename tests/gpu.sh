#!/bin/bash
# Everything that needs an NVIDIA GPU, on a machine that has one: tests/gpu.sh [PART]...
#
# build        the native core, and one product on the GPU
# tests        tests/gpu
# models       the models of tests/integration/test_models.py, where their libraries are
# conformance  torch's database of operators
# bench        benchmarks/overhead.py
# night        a long training (not unless asked for)
# device       tests/device on the GPU, for its differences from the host; says which of them tests/gpu/device_differs.txt does not
#              name yet (not unless asked for)
# device-host  tests/device on the host of this machine, to tell what else differs here; the last lines of `device` and `device-host`
#              then count what fails on the GPU alone (not unless asked for)
# gpus         ranks that average gradients over gloo: losses, cost and faults; on several GPUs the conformance and tests/device,
#              too, on the first alone and on all (not unless asked for)
#
# Works without a network, in a checkout: needs Python with torch for CUDA, pytest, pytest-xdist, click, rich, platformdirs
# and a C++ compiler; the conformance needs expecttest, too. Each part has its own limit in seconds (GPU_LIMIT_TESTS=900,
# ...) and says at its end how it went; the last line counts them. Results lie in $OUT, else in build/gpu.
#
# Parts that run tests write what failed to $OUT/PART.failed, a line each, and all of it to $OUT/PART.xml (JUnit).
#
# PYTHON        the Python to use (python3)
# GPU_WORKERS   processes side by side (8)
# GPU_ROUNDS    factor on the rounds of bench (1)
# GPU_MARKS     which of tests/device (`not slow`: each slow one takes longer than many others together)
set -u
cd "$(dirname "$0")/.." || exit 2
PYTHON=${PYTHON:-python3}
WORKERS=${GPU_WORKERS:-8}
OUT=${OUT:-build/gpu}
mkdir -p "$OUT"
export PYTHONPATH="$PWD/src:$PWD/tests${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export ANYMPS_CACHE_DIR=${ANYMPS_CACHE_DIR:-$PWD/build/gpu-cache}
mkdir -p "$ANYMPS_CACHE_DIR"
chmod 700 "$ANYMPS_CACHE_DIR"
# Only the plugin that shares the tests out: another's warnings would be errors.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
export ANYMPS_GPU_TESTS=cuda # without a GPU they fail, and are not skipped
PYTEST=("$PYTHON" -m pytest -p xdist.plugin -p no:cacheprovider -q -n "$WORKERS" -rfE --tb=line)
DEVICE=(-m "${GPU_MARKS:-not slow}" --dist loadfile tests/device)
passed=0 failed=()

part() { # NAME LIMIT COMMAND...
  local name=$1 limit=$2 began=$SECONDS status
  shift 2
  echo "==> $name (at most $limit s)"
  timeout --kill-after=10 "$limit" "$@" >"$OUT/$name.txt" 2>&1
  status=$?
  grep -E '^(FAILED|ERROR) ' "$OUT/$name.txt" | sed -E 's/^[A-Z]+ //; s/ - .*//' | sort >"$OUT/$name.failed"
  [ -s "$OUT/$name.failed" ] || rm "$OUT/$name.failed"
  tail -n "${GPU_TAIL:-40}" "$OUT/$name.txt"
  if [ $status = 0 ]; then
    passed=$((passed + 1))
    echo "gpu.sh: $name: ok, $((SECONDS - began)) s"
  else
    failed+=("$name")
    [ $status = 124 ] && status="$status (its time was up)"
    echo "gpu.sh: $name: FAILED with $status, $((SECONDS - began)) s; all of it is in $OUT/$name.txt"
  fi
}

tests() { # NAME LIMIT [VARIABLE=VALUE]... -- ARGUMENT...: a part that is a run of pytest
  local name=$1 limit=$2 variables=()
  shift 2
  while [ "$1" != -- ]; do variables+=("$1") && shift; done
  shift
  part "$name" "$limit" env "${variables[@]}" "${PYTEST[@]}" --junitxml="$OUT/$name.xml" "$@"
}

# What failed on the GPU and not on the host, if both ran.
gpu_alone() {
  [ -f "$OUT/device.xml" ] && [ -f "$OUT/device-host.xml" ] || return 0
  touch "$OUT/device.failed" "$OUT/device-host.failed"
  comm -23 "$OUT/device.failed" "$OUT/device-host.failed" >"$OUT/gpu-alone.failed"
  echo "gpu.sh: $(wc -l <"$OUT/gpu-alone.failed") tests of tests/device fail on the GPU alone: $OUT/gpu-alone.failed"
}

# What failed on the GPU beyond the differences that are known.
unknown_differences() {
  touch "$OUT/device.failed"
  grep '^tests/' tests/gpu/device_differs.txt | LC_ALL=C sort >"$OUT/device.known"
  LC_ALL=C sort "$OUT/device.failed" | LC_ALL=C comm -23 - "$OUT/device.known" >"$OUT/device.unknown"
  echo "gpu.sh: $(wc -l <"$OUT/device.unknown") tests of tests/device fail that tests/gpu/device_differs.txt does not name"
  head -n 20 "$OUT/device.unknown"
}

[ $# = 0 ] && set -- build tests models conformance bench
for name in "$@"; do
  case $name in
  build) part build "${GPU_LIMIT_BUILD:-420}" "$PYTHON" -c "
import anymps.device, torch
anymps.device.build()
from anymps.device._gpus import look_for_gpus, take_gpu
print(torch.__version__, look_for_gpus().driver, take_gpu())
import anymps
anymps.enable('M2 16GB', substrate='cuda')
print(float((torch.ones(4, 4, device='mps') @ torch.ones(4, 4, device='mps')).sum()))" ;;
  tests) tests tests "${GPU_LIMIT_TESTS:-500}" -- -m gpu --dist loadgroup tests/gpu ;;
  models) tests models "${GPU_LIMIT_MODELS:-300}" ANYMPS_SUBSTRATE=cuda -- --dist load tests/integration/test_models.py ;;
  device)
    tests device "${GPU_LIMIT_DEVICE:-500}" ANYMPS_SUBSTRATE=cuda -- "${DEVICE[@]}"
    unknown_differences
    gpu_alone
    ;;
  device-host)
    tests device-host "${GPU_LIMIT_DEVICE:-500}" ANYMPS_SUBSTRATE=host -- "${DEVICE[@]}"
    gpu_alone
    ;;
  conformance) part conformance "${GPU_LIMIT_CONFORMANCE:-400}" "$PYTHON" -m tests.conformance --substrate cuda --shards "$((2 * WORKERS))" \
    --rows "$OUT/conformance-rows.json" --write "$OUT/fidelity" ;;
  bench) part bench "${GPU_LIMIT_BENCH:-550}" "$PYTHON" benchmarks/overhead.py --substrate cuda --rounds "${GPU_ROUNDS:-1}" --json "$OUT/overhead-cuda.json" ;;
  night) part night "${GPU_LIMIT_NIGHT:-1800}" "$PYTHON" benchmarks/gpu_night.py --out "$OUT" ;;
  gpus)
    part gpus "${GPU_LIMIT_GPUS:-900}" "$PYTHON" benchmarks/many_gpus.py --out "$OUT"
    there=$("$PYTHON" -c "import torch; print(torch.cuda.device_count())")
    [ "$there" -gt 1 ] && for gpus in 1 "$there"; do
      part "conformance-on-$gpus" "${GPU_LIMIT_CONFORMANCE:-400}" env ANYMPS_GPUS="$gpus" "$PYTHON" -m tests.conformance --substrate cuda \
        --shards "$((2 * WORKERS))" --rows "$OUT/conformance-on-$gpus.json"
      tests "device-on-$gpus" "${GPU_LIMIT_DEVICE:-500}" ANYMPS_GPUS="$gpus" ANYMPS_SUBSTRATE=cuda -- "${DEVICE[@]}"
    done
    ;;
  *) echo "gpu.sh: there is no part $name: build, tests, models, conformance, bench, night, device, device-host, gpus" && exit 2 ;;
  esac
done
echo "gpu.sh: $passed ok, ${#failed[@]} failed${failed[*]:+: ${failed[*]}}"
[ ${#failed[@]} = 0 ]
