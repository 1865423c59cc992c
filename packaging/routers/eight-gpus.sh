#!/usr/bin/env bash
# Starts a server for each of eight GPUs of this host and vLLM's router before them, by systemd: docs/many-devices.md says what to do before.
# Run as root. Not run on eight GPUs. Other GPUs: change the four lists of numbers, and upstream in
# nginx.conf; for --tensor-parallel 4 the servers take cuda:0 and cuda:4. For /v1/responses and /v1/messages add --api-key KEY to SERVERS.
# With a probe add --probe /models/probe to FLAGS. 512 sequences are for a student (docs/serving-production.md, How many users fit).
# All listens on 127.0.0.1 alone; tcp://* would publish prompts on every interface.
set -euo pipefail
here=$(dirname "$0")

for i in 0 1 2 3 4 5 6 7; do
  printf 'MODEL=/models/m\nFLAGS=--device cuda:%d --port 808%d --threads 4 --weights int8 --kv-dtype int8 --model-name model --max-context 16384 --max-sequences 512 --drain-delay 10 --shutdown-timeout 300 --kv-events tcp://[::ffff:127.0.0.1]:555%d\n' $i $i $i > /etc/winnow/gpu$i.env
done
{ echo VLLM_ROUTER_TOKENIZER=/models/m
  echo SERVERS=--worker-urls http://127.0.0.1:808{0..7} $(for i in {0..7}; do echo --kv-event-source http://127.0.0.1:808$i=tcp://127.0.0.1:555$i; done)
} > /etc/winnow/router.env
cp "$here/../winnow@.service" "$here/winnow-router.service" /etc/systemd/system/
systemctl daemon-reload
systemctl enable --now winnow@gpu{0..7} winnow-router
