#!/usr/bin/env bash
# One machine with an NVIDIA GPU from end to end: doctor, builds, edits and judgements timed, a replayed run in CUDA and one in
# Triton, a handful of tasks as a suite. Prints the figures last; complete logs lie in $OUT (default gpu-machine/).
#   benchmarks/gpu_machine.sh [STEP…]         steps: doctor edit cuda triton bench (default: these), inspect
# Every step has a time limit of its own, together below 9 minutes. Where GPU_ENV is set (NAME=VALUE words), the container gets the
# machine's own /usr, /opt and /etc and those variables on top of the bare image named in GPU_IMAGE.
set -uo pipefail
cd "$(dirname "$0")/.."
OUT=${OUT:-$PWD/gpu-machine}
mkdir -p "$OUT"
PY=${PYTHON:-$([ -x .venv/bin/python ] && echo "$PWD/.venv/bin/python" || command -v python3)}
export CUDA_AGENT_CACHE=${CUDA_AGENT_CACHE:-/tmp/cuda-agent-cache}
CONFIG=$OUT/agent.toml
{
  echo '[sandbox]'
  if [ -n "${GPU_ENV:-}" ]; then
    echo 'kind = "docker"'
    echo "image = \"${GPU_IMAGE:-gpu-base:1}\""
    echo 'gpu = "nodes"'
    echo "image_python = \"$(readlink -f "$(dirname "$(command -v python3)")")/python3\""
    echo 'mounts = ["/usr", "/opt", "/etc"]'
    printf 'env = ['; for word in $GPU_ENV; do printf '"%s", ' "$word"; done; echo ']'
  fi
  echo 'memory_gb = 64.0'
  echo 'tmp_gb = 24.0'
  echo 'pids = 4096'
  echo '[judge]'
  echo 'target = "cuda"'
} >"$CONFIG"
mkdir -p "$OUT/work" && cp "$CONFIG" "$OUT/work/agent.toml" # benchmarks read agent.toml of their folder

step() { # NAME LIMIT_S COMMAND…: one line with how it ended; output in $OUT/NAME.log
  local name=$1 limit=$2 began=$SECONDS code
  shift 2
  timeout --kill-after=10 "$limit" "$@" >"$OUT/$name.log" 2>&1
  code=$?
  printf '%-10s exit %3d  %4d s of %d\n' "$name" "$code" $((SECONDS - began)) "$limit" | tee -a "$OUT/steps.txt"
}

wanted() { [ ${#STEPS[@]} -eq 0 ] || [[ " ${STEPS[*]} " == *" $1 "* ]]; }
named() { [[ " ${STEPS[*]} " == *" $1 "* ]]; }
STEPS=("$@")
: >"$OUT/steps.txt"

wanted doctor && step doctor 100 "$PY" -m agent doctor --config "$CONFIG"
wanted edit && step edit 130 env -C "$OUT/work" PYTHONPATH="$PWD:${PYTHONPATH:-}" "$PY" "$PWD/benchmarks/gpu_edit.py" --repeats 3
wanted cuda && step cuda 70 "$PY" -m agent optimize examples/cuda-row-softmax/model.py --config "$CONFIG" --plain -o "$OUT/runs"
wanted triton && step triton 70 "$PY" -m agent optimize examples/triton-rmsnorm/model.py --config "$CONFIG" --plain -o "$OUT/runs"
if wanted bench || named inspect; then
  "$PY" - "$OUT/submissions" <<'PYTHON'
"""What the examples' scripts write, as one submission per example."""
import sys
from pathlib import Path
sys.path.insert(0, ".")
from agent.backends.script import read_script
for example in (*Path("examples").glob("cuda-*"), *Path("examples").glob("triton-*")):
    for turn in read_script(example / "turns.md").turns:
        for name, arguments in turn.actions:
            if name == "write_file":
                path = Path(sys.argv[1]) / example.name / arguments["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(arguments["content"])
PYTHON
fi
if wanted bench; then
  step bench 160 "$PY" -m agent bench examples --task cuda-cross-entropy --task cuda-instance-norm-pool --task triton-masked-cumsum \
    --task triton-alibi-attention --submissions "$OUT/submissions" -o "$OUT/bench" --config "$CONFIG"
fi
if named inspect; then # on the machine itself, so that the raw output of ncu and compute-sanitizer can be kept as well
  {
    echo "set -x; cd $PWD"
    echo "export ${GPU_ENV:-PATH=$PATH}"
    echo "task=\$(python3 -c 'import json; print(json.dumps({\"model_py\": open(\"examples/cuda-row-softmax/model.py\").read()}))')"
    echo "where='--workspace $OUT/submissions/cuda-row-softmax'"
    echo "echo \"\$task\" | python3 -I tools/inspect_kernels.py \$where --counters --code softmax"
    echo "echo \"\$task\" | python3 -I tools/sanitize.py \$where --checks memcheck,racecheck"
    echo "cuobjdump -sass \$(ls -t /tmp/agent-build/*/cuda_extension.so | head -1) >$OUT/sass.txt"
    echo "ncu --csv --page raw --print-units base --clock-control none --launch-count 2 --metrics gpu__time_duration.sum,dram__bytes.sum \\"
    echo "  python3 -c 'import torch; x = torch.ones(1 << 26, device=\"cuda\"); y = x + 1; torch.cuda.synchronize()' >$OUT/ncu.csv 2>&1"
  } >"$OUT/inspect.sh"
  step inspect 150 bash "$OUT/inspect.sh"
fi

echo
echo "== $(date -u +%F), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1), torch $(python3 -c 'import torch; print(torch.__version__)' 2>/dev/null)"
cat "$OUT/steps.txt"
for name in edit; do [ -s "$OUT/$name.log" ] && { echo "-- $name"; cat "$OUT/$name.log"; }; done
for name in cuda triton; do [ -s "$OUT/$name.log" ] && { echo "-- $name"; tail -n 12 "$OUT/$name.log"; }; done
[ -s "$OUT/doctor.log" ] && { echo "-- doctor"; grep -E '✗|!|GPU access|→' "$OUT/doctor.log" | head -n 30; }
[ -s "$OUT/inspect.log" ] && { echo "-- inspect"; grep '^{' "$OUT/inspect.log" | cut -c1-3000; }
[ -s "$OUT/bench/summary.md" ] && { echo "-- bench"; cat "$OUT/bench/summary.md"; }
true
