#!/bin/bash
# Everything that needs an NVIDIA card, on a machine that has one: tests/gpu.sh [PART]...
#
# build        the native core, and one product on the card
# tests        tests/gpu
# models       the models of tests/integration/test_models.py, where their libraries are
# conformance  torch's database of operators
# bench        benchmarks/overhead.py
# night        a long training (not unless asked for)
# device       tests/device on the card, for its differences from the host (not unless asked for)
# cards        ranks that average gradients over gloo: losses, cost and faults; on several cards the conformance and tests/device,
#              too, on the first alone and on all (not unless asked for)
# oracle       what PyTorch's Metal kernels answered (KEPT, a file of tests/oracle/kept.py) beside the card and the host (not
#              unless asked for)
#
# Works without a network, in a checkout: needs Python with torch for CUDA, pytest, pytest-xdist, click, rich, platformdirs,
# ninja and a C++ compiler; the conformance needs expecttest, too. Each part has its own limit in seconds (GPU_LIMIT_TESTS=900,
# ...) and says at its end how it went; the last line counts them. Results lie in $OUT, else in build/gpu.
#
# PYTHON        the Python to use (python3)
# GPU_WORKERS   processes side by side (8)
# GPU_ROUNDS    factor on the rounds of bench (1)
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
export ANYMPS_GPU_TESTS=cuda # without a card they fail, and are not skipped
PYTEST=("$PYTHON" -m pytest -p xdist.plugin -p no:cacheprovider -q -n "$WORKERS")
passed=0 failed=()

part() { # NAME LIMIT COMMAND...
  local name=$1 limit=$2 began=$SECONDS status
  shift 2
  echo "==> $name (at most $limit s)"
  timeout --kill-after=10 "$limit" "$@" >"$OUT/$name.txt" 2>&1
  status=$?
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

[ $# = 0 ] && set -- build tests models conformance bench
for name in "$@"; do
  case $name in
  build) part build "${GPU_LIMIT_BUILD:-420}" "$PYTHON" -c "
import anymps.device, torch
anymps.device.build()
from anymps.device._cards import look_for_cards, take_card
print(torch.__version__, look_for_cards().driver, take_card())
import anymps
anymps.enable('M2 16GB', substrate='cuda')
print(float((torch.ones(4, 4, device='mps') @ torch.ones(4, 4, device='mps')).sum()))" ;;
  tests) part tests "${GPU_LIMIT_TESTS:-500}" "${PYTEST[@]}" -m gpu --dist loadgroup tests/gpu ;;
  models) part models "${GPU_LIMIT_MODELS:-300}" env ANYMPS_SUBSTRATE=cuda "${PYTEST[@]}" --dist load tests/integration/test_models.py ;;
  device) part device "${GPU_LIMIT_DEVICE:-500}" env ANYMPS_SUBSTRATE=cuda "${PYTEST[@]}" --dist loadfile tests/device ;;
  conformance) part conformance "${GPU_LIMIT_CONFORMANCE:-400}" "$PYTHON" -m tests.conformance --substrate cuda --shards "$((2 * WORKERS))" \
    --rows "$OUT/conformance-rows.json" --write "$OUT/fidelity" ;;
  bench) part bench "${GPU_LIMIT_BENCH:-550}" "$PYTHON" benchmarks/overhead.py --substrate cuda --rounds "${GPU_ROUNDS:-1}" --json "$OUT/overhead-cuda.json" ;;
  night) part night "${GPU_LIMIT_NIGHT:-1800}" "$PYTHON" benchmarks/gpu_night.py --out "$OUT" ;;
  cards)
    part cards "${GPU_LIMIT_CARDS:-900}" "$PYTHON" benchmarks/many_cards.py --out "$OUT"
    there=$("$PYTHON" -c "import torch; print(torch.cuda.device_count())")
    [ "$there" -gt 1 ] && for cards in 1 "$there"; do
      part "conformance-on-$cards" "${GPU_LIMIT_CONFORMANCE:-400}" env ANYMPS_CARDS="$cards" "$PYTHON" -m tests.conformance --substrate cuda \
        --shards "$((2 * WORKERS))" --rows "$OUT/conformance-on-$cards.json"
      part "device-on-$cards" "${GPU_LIMIT_DEVICE:-500}" env ANYMPS_CARDS="$cards" ANYMPS_SUBSTRATE=cuda "${PYTEST[@]}" --dist loadfile tests/device
    done
    ;;
  oracle)
    for substrate in host cuda; do
      part "oracle-$substrate" "${GPU_LIMIT_ORACLE:-300}" "$PYTHON" -m tests.oracle --kept "$KEPT" --substrate "$substrate" --rows "$OUT/oracle-$substrate.json"
    done
    ;;
  *) echo "gpu.sh: there is no part $name: build, tests, models, conformance, bench, night, device, cards, oracle" && exit 2 ;;
  esac
done
echo "gpu.sh: $passed ok, ${#failed[@]} failed${failed[*]:+: ${failed[*]}}"
[ ${#failed[@]} = 0 ]
