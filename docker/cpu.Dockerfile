# The command electra-tf on a CPU. The build context is the repository:
#
#   docker build -f docker/cpu.Dockerfile -t electra-tf .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" electra-tf --help

FROM python:3.12-slim-bookworm AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir=/wheel .

FROM python:3.12-slim-bookworm
LABEL org.opencontainers.image.source="https://github.com/electra-tf/electra_tf" \
      org.opencontainers.image.licenses="Apache-2.0"
# Before the code, so that a change of the code does not install these again.
COPY constraints.txt requirements.txt /requirements/
RUN pip install --no-cache-dir -c /requirements/constraints.txt -r /requirements/requirements.txt
COPY --from=wheel /wheel /wheel
RUN for wheel in /wheel/*.whl; do \
      pip install --no-cache-dir -c /requirements/constraints.txt "$wheel[report,serving]" || exit; done \
    && useradd --uid=1000 --create-home electra \
    && install -d -o 1000 -g 1000 /data
# The number of --user has no account: programs find a name and a home here.
ENV HOME=/tmp USER=electra TF_CPP_MIN_LOG_LEVEL=2
USER 1000
WORKDIR /data
ENTRYPOINT ["electra-tf"]
