# shellcheck shell=sh
# Read by the other scripts here: what every run has in common.
# TWINS_DATA is the folder of the data sets, TWINS_WORK the one for checkpoints, TWINS_OUT where finished twins go.

cd "$(dirname "$0")/../.." || exit 1

# Train one twin, unless it is there already; a run that was stopped goes on where it was.
train() {
  .venv/bin/python -m models.train "$@" --data "${TWINS_DATA:-../shared/data}" --work "${TWINS_WORK:-build/twins}" --out "${TWINS_OUT:-models/twins}"
}
