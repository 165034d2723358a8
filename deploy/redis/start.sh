#!/bin/sh
# Starts redis-server with one user, "headscope". Its password comes from REDIS_PASSWORD; only its digest is written, to ACL_FILE.
# The arguments are those of redis-server.
set -eu
: "${REDIS_PASSWORD:?is not set. Set the passwords in .env; .env.example says how.}"
digest=$(printf %s "$REDIS_PASSWORD" | sha256sum | cut -d ' ' -f 1)
umask 077
cat > "$ACL_FILE" <<EOF
user default off
user headscope on #$digest ~* &* +@all -@admin -@dangerous +info +config|get
EOF
exec redis-server "$@" --aclfile "$ACL_FILE"
