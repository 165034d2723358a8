#!/bin/bash
# Run one worker per visible GPU. If one exits, the container stops and its restart policy restarts all of them.
# Set DEVICES to choose the devices: DEVICES="cuda:0 cuda:2".
set -uo pipefail

count='import torch; print(*(f"cuda:{n}" for n in range(torch.cuda.device_count())))'
read -ra devices <<< "${DEVICES-$(python -c "$count")}"
if [ ${#devices[@]} -eq 0 ]; then
  echo "No GPU is visible. Give the container one (see the service gpu in docker-compose.yml), or start the service worker instead." >&2
  exit 1
fi

stop() {
  kill -TERM "${workers[@]}" 2>/dev/null
  wait "${workers[@]}" 2>/dev/null
}

workers=()
trap 'stop; exit 0' TERM INT
address=${HEADSCOPE_METRICS_ADDRESS-}
for number in "${!devices[@]}"; do
  # Each worker serves its metrics on a port of its own.
  HEADSCOPE_METRICS_ADDRESS=${address:+${address%:*}:$((${address##*:} + number))} headscope worker --device "${devices[$number]}" &
  workers+=($!)
done
wait -n
ended=$?
stop
exit "$ended"
