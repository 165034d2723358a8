#!/bin/sh
# How much a seed decides: twins that read images and ones that judge reviews, twice more each. They are not shipped; their figures go to docs/measured.
set -eu
# shellcheck source=models/runs/settings.sh
. "$(dirname "$0")/settings.sh"
bodies="${TWINS_OUT:-models/twins}"
TWINS_OUT="${TWINS_WORK:-build/twins}/compared"
hopfield='{"name": "hopfield", "alpha": 0.5}'

# again TWIN ARGUMENTS..., with the seed whose turn it is
again() {
  name="$1-seed-$seed"
  shift
  train "$name" --seed "$seed" "$@"
  cp "$TWINS_OUT/$name/evaluation.json" "docs/measured/$name.json"
}

for seed in 1 2; do
  again twin-vit-softmax --objective images --steps 3900
  again twin-vit-hopfield-05 --objective images --steps 3900 --mechanism "$hopfield"
  again twin-sst2-softmax --objective sentences --start "$bodies/twin-bert-softmax" --steps 1080 --rate 1e-4 --warmup 100 --dropout 0.1
  again twin-sst2-hopfield --objective sentences --start "$bodies/twin-bert-hopfield" --steps 1080 --rate 1e-4 --warmup 100 --dropout 0.1 --mechanism "$hopfield"
done
