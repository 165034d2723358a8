#!/bin/sh
# Every twin, one after the other. What is finished is skipped, what was stopped goes on: run it again until it says nothing but that all are there.
set -eu
here="$(dirname "$0")"

for family in bert gpt vit jump finetuned reviews frozen seeds; do
  "$here/$family.sh"
done
