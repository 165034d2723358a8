#!/bin/bash
set -euo pipefail
if [ ! -e "$PGDATA/PG_VERSION" ]; then
  read -ra options <<< "${POSTGRES_INITDB_ARGS-}"
  initdb --pgdata "$PGDATA" --username "$POSTGRES_USER" --pwfile <(echo "$POSTGRES_PASSWORD") "${options[@]}"
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  echo "listen_addresses = '*'" >> "$PGDATA/postgresql.conf"
  echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -D "$PGDATA" postgres
fi
exec "$@"
