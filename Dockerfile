# The command line in a container:
#   docker build --tag robust-diffusion .
#   docker run --rm --volume results:/workspace/outputs robust-diffusion -m flow=heat,beltrami
#
# torch's usual wheels for Linux hold CUDA, so that on a machine with NVIDIA's container toolkit
#   docker run --rm --gpus all --volume results:/workspace/outputs robust-diffusion trainer=gpu
# needs no other image. Build arguments:
#   BASE             an image of Debian or Ubuntu, with Python 3.11 to 3.13 of its own or as a package,
#                    such as nvidia/cuda:12.8.1-base-ubuntu24.04
#   EXTRA_INDEX_URL  an index of torch's CPU wheels, for an image without CUDA, gigabytes smaller
ARG BASE=python:3.11-slim
FROM ${BASE}

# The compiler builds the kernels, for the processor that runs them.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && if ! command -v python3; then \
        apt-get install --yes --no-install-recommends python3 python3-venv; fi \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/robust-diffusion
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PIP_NO_CACHE_DIR=1
COPY constraints.txt ./
ARG EXTRA_INDEX_URL=
RUN PIP_EXTRA_INDEX_URL=${EXTRA_INDEX_URL} python -m pip install --constraint constraints.txt torch
COPY . .
RUN python -m pip install --constraint constraints.txt '.[report,wandb,launchers]'

# Volumes take the owner of the folders on which they are mounted.
RUN useradd --create-home researcher \
    && mkdir --parents /workspace/outputs /workspace/data \
    && chown --recursive researcher /workspace
USER researcher
WORKDIR /workspace
ENTRYPOINT ["python", "-m", "robust_diffusion.run"]
