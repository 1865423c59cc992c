#!/usr/bin/env bash
# Tests the server with large clients: lm-eval, guidellm, and Open WebUI (needs Chromium). They come from PyPI into
# virtual environments in BUILD; exits with 77 (skipped) if they cannot be installed. Each runs with its defaults; the
# script fails if one of them meets an error.
# Usage: scripts/large-client-tests.sh BUILD [lm-eval] [guidellm] [open-webui]
set -euo pipefail
cd "$(dirname "$0")/.."

build=$(realpath "$1")
shift
clients=("${@:-lm-eval guidellm open-webui}")
out=$build/large-client-tests
mkdir -p "$out"
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 OPENAI_API_KEY=none

# lm-eval and guidellm share most of their dependencies. guidellm needs only a data loader of PyTorch (5 GB with
# CUDA's libraries): tests/server/large/without_torch replaces it. Jinja2 would come with PyTorch.
install_benchmarks() {
  scripts/venv.sh "$out/benchmarks" --override tests/server/large/without_torch.txt "lm-eval[api]" guidellm Jinja2
}

# Its slim mode, without documents, speech and search: 0.9 GB instead of 7.5. typer would come with chromadb.
install_open_webui() {
  scripts/venv.sh "$out/open-webui" --override tests/server/large/without_torch.txt \
    --override tests/server/large/slim_open_webui.txt open-webui playwright typer
}

# The demo model with a longer context: the tools of Open WebUI alone take 8,000 tokens.
model=$out/dms-cr8
rm -rf "$model"
mkdir "$model"
ln -s "$PWD"/assets/dms-cr8/* "$model"
rm "$model/config.json"
sed 's/"max_position_embeddings": 4096/"max_position_embeddings": 32768/' assets/dms-cr8/config.json \
  >"$model/config.json"

# guidellm sends 512 requests at once.
: >"$out/server.out"  # the output of an earlier run names another port
"$build/bin/winnow" serve --model "$model" --port 0 --max-requests 1024 \
  >"$out/server.out" 2>"$out/server.log" &
server=$!
trap 'kill $server' EXIT
until grep -q "serves on" "$out/server.out"; do
  kill -0 $server
  sleep 0.1
done
url=$(grep -o "http://[^ ]*" "$out/server.out")

lm_eval() {
  install_benchmarks
  local run=("$out/benchmarks/bin/lm_eval" run --include_path tests/server/large)
  "${run[@]}" --tasks winnow_choice,winnow_words --model local-completions \
    --model_args "model=dms-cr8,base_url=$url/v1/completions,num_concurrent=4,add_bos_token=True"
  "${run[@]}" --tasks winnow_words --apply_chat_template --model local-chat-completions \
    --model_args "model=dms-cr8,base_url=$url/v1/chat/completions,num_concurrent=4"
}

guidellm() {
  install_benchmarks
  USE_TORCH=0 PYTHONPATH=tests/server/large/without_torch timeout 300 "$out/benchmarks/bin/guidellm" run \
    --disable-console-interactive --backend "kind=openai_http,target=$url" --profile kind=sweep,sweep_size=3 \
    --constraint kind=max_requests,count=20 --tokenizer "kind=hf_auto,model=$model" \
    --data kind=synthetic_text,prompt_tokens=32,output_tokens=8 \
    --output "kind=json,path=$out/guidellm.json"
  python3 - "$out/guidellm.json" <<'END'
import json, sys
for benchmark in json.load(open(sys.argv[1]))["benchmarks"]:
    totals = benchmark["metrics"]["request_totals"]
    print(totals)
    assert totals["successful"] == 20 and totals["errored"] == 0, totals
END
}

for client in ${clients[@]}; do
  echo "== $client"
  case $client in
    lm-eval) lm_eval ;;
    guidellm) guidellm ;;
    open-webui)
      install_open_webui
      USE_SLIM_DOCKER=true "$out/open-webui/bin/python" tests/server/large/open_webui.py "$url/v1" "$out" ;;
    *) echo "no such client: $client" && exit 1 ;;
  esac
done
