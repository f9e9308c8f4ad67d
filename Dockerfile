# QuantFlow in a container, as the command `quantflow`.
#
#     docker build --build-arg VARIANT=cpu -t quantflow .
#     docker run --rm -v "$PWD:/work" quantflow run recipes/quickstart.yaml
#
# VARIANT=cuda with EXTRA=gpu is for NVIDIA GPUs (docker run --gpus all). TORCH, TORCH_INDEX_URL and EXTRA are those of
# `make setup`: give TORCH_INDEX_URL an index of CPU builds to make the cpu image a few GB smaller.
ARG VARIANT=cpu

FROM python:3.11-slim-bookworm AS base
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 quantflow \
    && install --directory --owner quantflow /opt/quantflow /work
USER 1000
WORKDIR /opt/quantflow
COPY --chown=1000 . .
ARG TORCH=
ARG TORCH_INDEX_URL=
ARG EXTRA=cpu
RUN make setup TORCH="$TORCH" TORCH_INDEX_URL="$TORCH_INDEX_URL" EXTRA="$EXTRA"
WORKDIR /work
ENTRYPOINT ["/opt/quantflow/.venv/bin/quantflow"]

FROM base AS cpu

FROM base AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

# hadolint ignore=DL3006
FROM ${VARIANT}
