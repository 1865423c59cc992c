#!/usr/bin/env bash
# Asks a running server with clients that are too large for every test run: lm-eval (760 MB), guidellm
# (6 GB) and Open WebUI (several GB), from PyPI into virtual environments in BUILD. Each is used with
# its defaults; the script fails if one of them meets an error.
# Usage: scripts/large-client-tests.sh BUILD [lm-eval] [guidellm] [open-webui]
set -euo pipefail
cd "$(dirname "$0")/.."

build=$(realpath "$1")
shift
clients=("${@:-lm-eval guidellm open-webui}")
out=$build/large-client-tests
mkdir -p "$out"
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 OPENAI_API_KEY=none

# install NAME PACKAGE: the programs of a package, in $out/NAME/bin.
install() {
  [[ -e $out/$1/installed ]] && return
  python3 -m venv "$out/$1"
  "$out/$1/bin/pip" install --quiet --disable-pip-version-check "$2"
  touch "$out/$1/installed"
}

"$build/bin/winnow" serve --model assets/dms-cr8 --port 0 >"$out/server.out" 2>"$out/server.log" &
server=$!
trap 'kill $server' EXIT
until grep -q "serves on" "$out/server.out"; do
  kill -0 $server
  sleep 0.1
done
url=$(grep -o "http://[^ ]*" "$out/server.out")

lm_eval() {
  install lm-eval "lm-eval[api]"
  local run=("$out/lm-eval/bin/lm_eval" run --include_path tests/server/large)
  "${run[@]}" --tasks winnow_choice,winnow_words --model local-completions \
    --model_args "model=dms-cr8,base_url=$url/v1/completions,num_concurrent=4,add_bos_token=True"
  "${run[@]}" --tasks winnow_words --apply_chat_template --model local-chat-completions \
    --model_args "model=dms-cr8,base_url=$url/v1/chat/completions,num_concurrent=4"
}

guidellm() {
  install guidellm guidellm
  "$out/guidellm/bin/guidellm" run --disable-console-interactive \
    --backend "kind=openai_http,target=$url" --profile kind=sweep,sweep_size=3 \
    --constraint kind=max_duration,max_duration=4 --tokenizer "kind=hf_auto,model=$PWD/assets/dms-cr8" \
    --data kind=synthetic_text,prompt_tokens=64,output_tokens=16 \
    --output "kind=json,path=$out/guidellm.json"
  python3 - "$out/guidellm.json" <<'END'
import json, sys
for benchmark in json.load(open(sys.argv[1]))["benchmarks"]:
    totals = benchmark["metrics"]["request_totals"]
    print(totals)
    assert totals["successful"] > 0 and totals["errored"] == 0, totals
END
}

for client in ${clients[@]}; do
  echo "== $client"
  case $client in
    lm-eval) lm_eval ;;
    guidellm) guidellm ;;
    open-webui)
      install open-webui open-webui
      "$out/open-webui/bin/python" tests/server/large/open_webui.py "$url/v1" "$out" ;;
    *) echo "no such client: $client" && exit 1 ;;
  esac
done
