#!/bin/sh
# GPT-like twins: the next token of english_text.
set -eu
# shellcheck source=models/runs/settings.sh
. "$(dirname "$0")/settings.sh"

train twin-gpt-softmax --objective causal-lm --steps 5000
train twin-gpt-hopfield --objective causal-lm --steps 5000 --mechanism '{"name": "hopfield", "alpha": 0.5}'
