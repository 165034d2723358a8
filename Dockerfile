# The server, and workers that compute on the CPU: docker compose build

FROM python:3.12-slim-bookworm AS wheel
RUN apt-get update \
 && apt-get install --yes --no-install-recommends make \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The page and the package, as in a checkout; Node.js comes as a Python package.
RUN make wheel


FROM python:3.12-slim-bookworm AS packages
# The torch of the Python index comes with CUDA. An index with CPU builds makes the image several gigabytes smaller; see .env.example.
ARG PIP_EXTRA_INDEX_URL=""
RUN --mount=type=bind,from=wheel,source=/src/dist,target=/wheels \
    python -m venv --without-pip /opt/headscope \
 && ln -s "$(/opt/headscope/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")" /opt/headscope/site-packages \
 && pip --python /opt/headscope/bin/python install --no-cache-dir "$(echo /wheels/headscope-*.whl)[cluster,oidc,otel,s3]"
# What only compilers and the packages' own tests read. torch refuses to be imported without torch_shm_manager.
WORKDIR /opt/headscope/site-packages
RUN rm -rf torch/include torch/test nvidia/*/include pyarrow/include \
 && find torch/bin -type f ! -name torch_shm_manager -delete \
 && find mpmath networkx numpy pyarrow sympy -type d -name tests -prune -exec rm -r {} +


FROM python:3.12-slim-bookworm
# The browser and the letters with which the server draws figures as PNG, SVG and PDF. There is no graphics card: its drivers, with their compiler, are left out.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends chromium-headless-shell fonts-dejavu-core \
 && rm -rf /var/lib/apt/lists/* /usr/lib/*/dri /usr/lib/*/libLLVM-*.so* /usr/lib/*/libz3.so* /usr/lib/chromium/libVkLayer_khronos_validation.so
COPY --from=packages /opt/headscope /opt/headscope
ENV PATH=/opt/headscope/bin:$PATH
RUN --mount=type=bind,source=deploy/sbom.py,target=/sbom.py \
    install --directory /usr/share/headscope \
 && python /sbom.py > /usr/share/headscope/sbom.cdx.json

# One folder is written to; a volume that is mounted there gets this owner.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/headscope --shell /usr/sbin/nologin headscope \
 && install --directory --owner 10001 --group 10001 --mode 0700 /var/lib/headscope
ENV BROWSER_PATH=/usr/bin/chromium-headless-shell \
    HEADSCOPE_HOME=/var/lib/headscope \
    HEADSCOPE_LOG_FORMAT=json \
    HF_HOME=/var/lib/headscope/hub \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Headscope" \
      org.opencontainers.image.description="See what attention heads do, and how much of what a head map shows reaches the output." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
USER 10001:10001
WORKDIR /var/lib/headscope
EXPOSE 8000
CMD ["headscope", "serve", "--host", "0.0.0.0", "--port", "8000", "--no-open"]
