#!/usr/bin/env bash
# One machine with an NVIDIA GPU from end to end, in steps; prints the figures last.
#   benchmarks/gpu_machine.sh [STEP…]      steps: doctor edit published examples bench inspect faults baselines figures times corpus
#                                          builtin judged
#                                          (default: doctor edit cuda triton bench; cuda and triton are one example each)
# A step that ended well is not done again (FORCE=1: it is); each has a time limit of its own. Results and logs lie in $WORK
# (default gpu-machine/, kept between calls), and a copy of what is worth keeping in $OUT, where that is set.
# In Docker: GPU_ENV="NAME=VALUE …" (the container gets the machine's own /usr, /opt and /etc on top of the bare image GPU_IMAGE,
# and these variables), or an image that was built (agent image build --cuda). Without: SANDBOX=none.
# Also: TARGET=cpu tries the script itself · KERNELBENCH=DIR and CUDA_AGENT=DIR are checkouts for baselines and published
# · EVERY=4 and JUDGED_S=400 of judged · RUNS=10, MEASURES=4 and FIGURES_S=24 of figures · TIMES_S=200 and TASKS=FILE of times · LEVELS=1,2,3 and BASELINES_S=400 of baselines · EDITS=3 repeats of edit and published.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
WORK=${WORK:-$PWD/gpu-machine}
TARGET=${TARGET:-cuda}
mkdir -p "$WORK/work" "$WORK/done"
[ -x .venv/bin/python ] && PY=${PYTHON:-$PWD/.venv/bin/python}
PY=${PY:-${PYTHON:-$(command -v python3)}}
export CUDA_AGENT_CACHE=${CUDA_AGENT_CACHE:-/tmp/cuda-agent-cache} PYTHONUNBUFFERED=1
CONFIG=$WORK/work/agent.toml # benchmarks read agent.toml of their folder
{
  echo '[sandbox]'
  if [ "${SANDBOX:-}" = none ]; then
    printf 'kind = "none"\ni_understand = true\n'
  elif [ -n "${GPU_ENV:-}" ]; then
    echo 'kind = "docker"'
    echo "image = \"${GPU_IMAGE:-gpu-base:1}\""
    echo 'gpu = "nodes"'
    echo "image_python = \"$(readlink -f "$(dirname "$(command -v python3)")")/python3\""
    echo 'mounts = ["/usr", "/opt", "/etc"]'
    printf 'env = ['
    for word in $GPU_ENV; do printf '"%s", ' "$word"; done
    echo ']'
  elif [ -n "${SANDBOX:-}" ]; then
    echo "kind = \"$SANDBOX\""
  fi
  if [ "$TARGET" = cuda ]; then
    printf 'memory_gb = 96.0\ntmp_gb = 24.0\npids = 4096\n'
  fi
  printf '[judge]\ntarget = "%s"\n' "$TARGET"
} >"$CONFIG"

sandbox_settings() { # what CONFIG says of the sandbox as section.key=value, one a line, for programs that take --set only
  "$PY" -c '
import json, sys, tomllib
for name, value in tomllib.load(open(sys.argv[1], "rb"))["sandbox"].items():
    print(f"sandbox.{name}={value if isinstance(value, str) else json.dumps(value)}")' "$CONFIG"
}

agent() { "$PY" -m agent "$@"; }
in_work() { env -C "$WORK/work" PYTHONPATH="$PWD:${PYTHONPATH:-}" "$PY" "$@"; }

step() { # NAME LIMIT_S COMMAND…: one line with how it ended; its output is $WORK/NAME.log
  local name=$1 limit=$2 began=$SECONDS code
  shift 2
  if [ -e "$WORK/done/$name" ] && [ -z "${FORCE:-}" ]; then
    printf '%-28s done before\n' "$name"
    return
  fi
  # A function cannot be timed out from outside; a subshell of this script can.
  (
    export -f agent in_work inspected timed_tasks
    export PY WORK CONFIG TARGET
    timeout --kill-after=10 "$limit" bash -c '"$@"' step "$@"
  ) >"$WORK/$name.log" 2>&1
  code=$?
  [ "$code" -eq 0 ] && : >"$WORK/done/$name"
  printf '%-28s exit %3d  %4d s of %d\n' "$name" "$code" $((SECONDS - began)) "$limit" | tee -a "$WORK/steps.txt"
}

optimized() { # EXAMPLE: its hand-written turns replayed and judged, recorded below $WORK/runs/EXAMPLE
  step "example-$1" "${EXAMPLE_S:-150}" agent optimize "examples/$1/model.py" --config "$CONFIG" --plain -o "${WORK#"$PWD"/}/runs/$1"
}

keep_runs() { # of every example's last run what ships with it: $WORK/kept/EXAMPLE/run goes to examples/EXAMPLE/run
  local verdict run kept
  for verdict in "$WORK"/runs/*/*/verdict.json; do
    run=$(dirname "$verdict")
    [ -e "$run/report.md" ] || continue # nothing was judged
    kept=$WORK/kept/$(basename "$(dirname "$run")")/run
    rm -rf "$kept" && mkdir -p "$kept"
    for part in config.json events.jsonl report.md task.json verdict.json best logs; do cp -r "$run/$part" "$kept/"; done
  done
}

submissions() { # what the examples' scripts write, as one submission per example
  "$PY" - "$WORK/submissions" "$TARGET" <<'PYTHON'
import sys
from pathlib import Path
sys.path.insert(0, ".")
from agent.backends.script import read_script
for turns in sorted(Path("examples").glob("*/turns.md")):
    script = read_script(turns)
    for name, arguments in [action for turn in script.turns for action in turn.actions if script.target == sys.argv[2]]:
        path = Path(sys.argv[1]) / turns.parent.name / arguments.get("path", "")
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == "write_file":
            path.write_text(arguments["content"])
        elif name == "edit_file":
            path.write_text(path.read_text().replace(arguments["old"], arguments["new"]))
PYTHON
}

examples_of_target() {
  grep -lx "target: $TARGET" examples/*/turns.md | xargs -n1 dirname | xargs -n1 basename
}

timed_tasks() { # of a set, in the order of its lines
  "$PY" -I tools/time_tasks.py --target "$TARGET" --budget-s "${TIMES_S:-200}" <"${TASKS:-examples/tasks/$TARGET.jsonl}" >"$WORK/times.jsonl"
}

inspected() { # raw output of the profilers beside what the tools make of it; on the machine itself
  local task
  rm -rf "$WORK/inspected" "$WORK/planted"
  cp -r "$WORK/submissions/cuda-row-softmax" "$WORK/inspected"
  task=$("$PY" -c 'import json; print(json.dumps({"model_py": open("examples/cuda-row-softmax/model.py").read()}))')
  echo "$task" | "$PY" -I tools/inspect_kernels.py --workspace "$WORK/inspected" --counters --code softmax
  echo "$task" | "$PY" -I tools/sanitize.py --workspace "$WORK/inspected" --checks memcheck,racecheck,initcheck
  # The same kernel with its last row written behind the buffer: memcheck must find that, and the reference must be clean.
  cp -r "$WORK/inspected" "$WORK/planted" && sed -i 's/__stcs(out + at,/__stcs(out + at + (blockIdx.x + 1 == gridDim.x) * columns4,/' "$WORK"/planted/kernels/*.cu
  echo "$task" | "$PY" -I tools/sanitize.py --workspace "$WORK/planted" --checks memcheck
  ncu --csv --page raw --print-units base --clock-control none --launch-count 2 --metrics gpu__time_duration.sum,dram__bytes.sum \
    "$PY" -c 'import torch; x = torch.ones(1 << 26, device="cuda"); y = x + 1; torch.cuda.synchronize()' >"$WORK/ncu.csv" 2>&1
  head -c 3000 "$WORK/ncu.csv"
}

if [ "$TARGET" = cuda ]; then
  BENCH=${BENCH:-cuda-cross-entropy cuda-instance-norm-pool triton-masked-cumsum triton-alibi-attention}
else
  BENCH=${BENCH:-rmsnorm-affine}
fi
[ $# -gt 0 ] || set -- doctor edit cuda triton bench
for name in "$@"; do
  case $name in
    doctor) step doctor "${DOCTOR_S:-100}" agent doctor --config "$CONFIG" ;;
    edit) step edit 260 in_work "$PWD/benchmarks/gpu_edit.py" --target "$TARGET" --repeats "${EDITS:-3}" --set judge.memcheck=false ;;
    published) step published 260 in_work "$PWD/benchmarks/published_scripts.py" "$(realpath "${CUDA_AGENT:?a checkout of CUDA-Agent}")" --target "$TARGET" --repeats "${EDITS:-2}" ;;
    cuda) optimized cuda-row-softmax ;;
    triton) optimized triton-rmsnorm ;;
    examples) for example in ${EXAMPLES:-$(examples_of_target)}; do optimized "$example"; done ;; # EXAMPLES: some of them
    bench)
      submissions
      tasks=()
      for task in $BENCH; do tasks+=(--task "$task"); done
      step bench 240 agent bench examples "${tasks[@]}" --submissions "$WORK/submissions" -o "$WORK/bench" --config "$CONFIG"
      ;;
    inspect)
      submissions
      step inspect 200 inspected
      ;;
    faults) step faults 300 "$PY" benchmarks/gpu_faults.py ;;
    baselines) step baselines $((${BASELINES_S:-400} + 120)) agent bench "${KERNELBENCH:?a checkout of KernelBench}" --reference --levels "${LEVELS:-1,2,3}" \
      --budget-s "${BASELINES_S:-400}" ${LIMIT:+--limit "$LIMIT"} --workers "$(($(nproc) * 5 / 4))" -o "$WORK/kernelbench" --config "$CONFIG" ;;
    figures) step figures 590 "$PY" benchmarks/judge_figures.py --target "$TARGET" --runs "${RUNS:-10}" --measures "${MEASURES:-4}" --budget-s "${FIGURES_S:-24}" --json "$WORK/figures.json" ;;
    times) step times $((${TIMES_S:-200} + 100)) timed_tasks ;;
    judged) step judged 590 "$PY" benchmarks/tasks_judged.py "${TASKS:-examples/tasks/$TARGET.jsonl}" --target "$TARGET" --sandbox none \
      --every "${EVERY:-4}" --warm "$(($(nproc) * 3 / 4))" --budget-s 2 --limit-s "${JUDGED_S:-400}" --out "$WORK/judged.jsonl" ;;
    corpus) step corpus 590 "$PY" -m tests.corpus.run --target "$TARGET" --quick --jobs "${JOBS:-6}" --budget-s 4 --cache "$WORK/corpus-cache" --json "$WORK/corpus.jsonl" --resume ;;
    builtin)
      read -ra arguments <<<"${BUILTIN:-}" # names of tasks, or their beginnings; all 40 take longer than a step may
      while read -r setting; do arguments+=(--set "$setting"); done < <(sandbox_settings)
      kind=${SANDBOX:-$([ -n "${GPU_ENV:-}" ] && echo docker || echo auto)}
      step builtin 590 "$PY" benchmarks/builtin_tasks.py "${arguments[@]}" --target "$TARGET" --sandbox "$kind" --out "$WORK/builtin"
      ;;
    *) echo "no step is called $name" >&2 ;;
  esac
done

keep_runs
"$PY" benchmarks/gpu_table.py "$WORK" | tee "$WORK/table.md"
if [ -n "${OUT:-}" ]; then
  mkdir -p "$OUT"
  cp "$WORK/table.md" "$OUT/"
  tar czf "$OUT/gpu-machine.tgz" -C "$WORK" --exclude=cache --exclude=corpus-cache --exclude=work --exclude='graph.sqlite*' .
fi
