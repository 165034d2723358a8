#!/bin/sh
# Twins that go on from the BERT-like ones: reviews of films (SST-2) and entities (WikiGold and WNUT-17). Five epochs; what learns few parameters, twenty.
# Where few parameters learn nothing is dropped out: with dropout 0.1 and a rate of 3e-3 both, this and frozen.sh, stayed at chance.
set -eu
# shellcheck source=models/runs/settings.sh
. "$(dirname "$0")/settings.sh"
bodies="${TWINS_OUT:-models/twins}"

train twin-sst2-softmax --objective sentences --start "$bodies/twin-bert-softmax" --steps 1080 --rate 1e-4 --warmup 100 --dropout 0.1
train twin-sst2-hopfield --objective sentences --start "$bodies/twin-bert-hopfield" --steps 1080 --rate 1e-4 --warmup 100 --dropout 0.1 --mechanism '{"name": "hopfield", "alpha": 0.5}'
train twin-ner-softmax --objective words --start "$bodies/twin-bert-softmax" --steps 740 --rate 2e-4 --warmup 70 --dropout 0.1
train twin-ner-jump --objective words --start "$bodies/twin-bert-jump" --steps 740 --rate 2e-4 --warmup 70 --dropout 0.1 --mechanism '{"name": "jump"}'
train twin-pasta --objective sentences --start "$bodies/twin-bert-softmax" --learn pasta --steps 4320 --rate 1e-3 --warmup 400
