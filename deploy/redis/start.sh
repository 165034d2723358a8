#!/bin/sh
# Start redis-server with one user, "headscope". Its password is read from REDIS_PASSWORD; only its digest is written, to ACL_FILE.
# All arguments are passed to redis-server.
#
# The user "default" cannot log in, but has every permission: Redis replays its append-only file as this user
# (https://github.com/redis/redis/issues/14541).
# The user "headscope" may run scripts but not flush them.
set -eu
: "${REDIS_PASSWORD:?is not set. Set the passwords in .env; .env.example says how.}"
digest=$(printf %s "$REDIS_PASSWORD" | sha256sum | cut -d ' ' -f 1)
umask 077
cat > "$ACL_FILE" <<EOF
user default off resetpass ~* &* +@all
user headscope on #$digest ~* &* +@all -@admin -@dangerous -@scripting +eval +evalsha +script|exists +script|load +info +config|get
EOF
exec redis-server "$@" --aclfile "$ACL_FILE"
