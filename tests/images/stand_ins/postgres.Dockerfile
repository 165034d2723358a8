# In place of postgres:15-bookworm: Debian's package, which creates the user and the database as that image does.
FROM python:3.12-slim-bookworm
RUN groupadd --gid 999 postgres \
 && useradd --uid 999 --gid 999 --home-dir /var/lib/postgresql postgres \
 && apt-get update \
 && apt-get install --yes --no-install-recommends postgresql-15 \
 && rm -rf /var/lib/apt/lists/* \
 && install --directory --owner 999 --group 999 --mode 0700 /var/lib/postgresql/data
ENV PATH=/usr/lib/postgresql/15/bin:$PATH
COPY --chmod=0755 postgres.sh /usr/local/bin/docker-entrypoint.sh
ENTRYPOINT ["docker-entrypoint.sh"]
