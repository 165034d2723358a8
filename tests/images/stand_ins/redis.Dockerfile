# In place of redis:7-bookworm: Debian's package.
FROM python:3.12-slim-bookworm
RUN groupadd --gid 999 redis \
 && useradd --uid 999 --gid 999 --no-create-home redis \
 && apt-get update \
 && apt-get install --yes --no-install-recommends redis-server \
 && rm -rf /var/lib/apt/lists/* \
 && install --directory --owner 999 --group 999 /data
WORKDIR /data
