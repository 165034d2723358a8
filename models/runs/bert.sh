#!/bin/sh
# BERT-like twins: masked tokens of english_text.
set -eu
# shellcheck source=models/runs/settings.sh
. "$(dirname "$0")/settings.sh"

train twin-bert-softmax --objective masked-lm --steps 5000
train twin-bert-hopfield --objective masked-lm --steps 5000 --mechanism '{"name": "hopfield", "alpha": 0.5}'
