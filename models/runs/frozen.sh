#!/bin/sh
# What twin-pasta is compared with, and not shipped: the same body with a head only. Its figures land in build/twins/compared.
set -eu
# shellcheck source=models/runs/settings.sh
. "$(dirname "$0")/settings.sh"
bodies="${TWINS_OUT:-models/twins}"

TWINS_OUT="${TWINS_WORK:-build/twins}/compared"
train twin-frozen --objective sentences --start "$bodies/twin-bert-softmax" --learn head --steps 4320 --rate 1e-3 --warmup 400
