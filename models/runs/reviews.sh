#!/bin/sh
# A twin of twin-bert-softmax that only ever read reviews: SST-2's training sentences and the reviews of the English Web Treebank, again and again.
set -eu
# shellcheck source=models/runs/settings.sh
. "$(dirname "$0")/settings.sh"

train twin-reviews --objective masked-lm --text reviews --steps 5000 --dropout 0.1
