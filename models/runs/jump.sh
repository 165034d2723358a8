#!/bin/sh
# The third BERT-like twin: jump attention in its default layers and heads.
set -eu
# shellcheck source=models/runs/settings.sh
. "$(dirname "$0")/settings.sh"

train twin-bert-jump --objective masked-lm --steps 5000 --mechanism '{"name": "jump"}'
