#!/bin/sh
# ViT-like twins: the classes of CIFAR-10, 10 epochs.
set -eu
# shellcheck source=models/runs/settings.sh
. "$(dirname "$0")/settings.sh"

train twin-vit-softmax --objective images --steps 3900
train twin-vit-hopfield-05 --objective images --steps 3900 --mechanism '{"name": "hopfield", "alpha": 0.5}'
train twin-vit-hopfield-07 --objective images --steps 3900 --mechanism '{"name": "hopfield", "alpha": 0.7}'
