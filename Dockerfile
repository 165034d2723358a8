# The server, and workers that compute on the CPU: docker compose build

FROM python:3.12-slim-bookworm AS wheel
RUN apt-get update \
 && apt-get install --yes --no-install-recommends make \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The page and the package, as in a checkout; Node.js comes as a Python package.
RUN make wheel


FROM python:3.12-slim-bookworm
# The browser and the letters with which the server draws figures as PNG, SVG and PDF.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends chromium fonts-dejavu-core \
 && rm -rf /var/lib/apt/lists/*
# An index with CPU builds of torch makes the image several gigabytes smaller; see .env.example.
ARG PIP_EXTRA_INDEX_URL=""
RUN --mount=type=bind,from=wheel,source=/src/dist,target=/wheels \
    pip install --no-cache-dir "$(echo /wheels/headscope-*.whl)[s3]"

# One folder is written to; whoever mounts a volume there gets it with this owner.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/headscope --shell /usr/sbin/nologin headscope \
 && install --directory --owner 10001 --group 10001 --mode 0700 /var/lib/headscope
ENV HEADSCOPE_HOME=/var/lib/headscope \
    HEADSCOPE_LOG_FORMAT=json \
    HF_HOME=/var/lib/headscope/hub \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/headscope
EXPOSE 8000
CMD ["headscope", "serve", "--host", "0.0.0.0", "--port", "8000", "--no-open"]
