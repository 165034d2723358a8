#!/bin/bash
# One worker per visible GPU. They stop together: when one ends, so does the container, and its restart policy begins anew.
# DEVICES names the devices where they are not to be counted: DEVICES="cuda:0 cuda:2".
set -uo pipefail

count='import torch; print(*(f"cuda:{n}" for n in range(torch.cuda.device_count())))'
read -ra devices <<< "${DEVICES-$(python -c "$count")}"
if [ ${#devices[@]} -eq 0 ]; then
  echo "No GPU can be seen. Give the container some (see the service gpu in docker-compose.yml), or start the service worker instead." >&2
  exit 1
fi

stop() {
  kill -TERM "${workers[@]}" 2>/dev/null
  wait "${workers[@]}" 2>/dev/null
}

workers=()
trap 'stop; exit 0' TERM INT
for device in "${devices[@]}"; do
  headscope worker --device "$device" &
  workers+=($!)
done
wait -n
ended=$?
stop
exit "$ended"
